"""A page to answer pairs on: what is asked (queue), what was answered (store), and the server between them."""
