"""Commands, one a file; each is imported when it is named."""
