"""What to ask next, which answers are wrong, whom to trust, and when to stop."""
