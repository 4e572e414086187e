"""How right are the labels? From answers that fits did not see, without any label."""
