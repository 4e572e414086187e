"""What "auto" stands for: measured signals, rules, the start, the search over settings."""
