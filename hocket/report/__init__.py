"""Results ranked against each other and their bounds: one HTML page, and a table for the terminal."""

from hocket.report.load import Entry, load_results
from hocket.report.page import render
from hocket.report.table import terminal_table

__all__ = ["Entry", "load_results", "render", "terminal_table"]
