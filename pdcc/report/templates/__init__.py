"""The page of a report: HTML, its style and its script."""
