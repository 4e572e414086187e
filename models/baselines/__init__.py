"""Networks and Pyro programs of the baselines."""
