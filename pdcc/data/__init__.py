"""Features and answered pairs: checked, read from files, split and scaled."""
