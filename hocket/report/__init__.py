"""Results ranked against each other and their bounds: pages, tables and sentences."""

from hocket.report.pages import render_results
from hocket.report.result_files import ClusterEntry, Entry, load_results
from hocket.report.step_page import render

__all__ = ["ClusterEntry", "Entry", "load_results", "render", "render_results"]
