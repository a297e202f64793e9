"""Results ranked against each other and their bounds: pages, tables and sentences."""
