"""Results ranked against each other and their bounds: one HTML page, and a table for the terminal."""

from hocket.report.load import ClusterEntry, Entry, load_results
from hocket.report.page import render
from hocket.report.pages import render_results
from hocket.report.table import terminal_table

__all__ = ["ClusterEntry", "Entry", "load_results", "render", "render_results", "terminal_table"]
