"""The page of a live cluster: it asks the manager that serves it, and nobody else."""

from __future__ import annotations

from hocket.report.html_page import render_page


def render_live() -> str:
    """The page; what it shows comes from v1/status beside it."""
    return render_page(
        "live.html", {"unit": {"symbol": "s", "per_second": 1}}, title="Hocket: a live cluster"
    )
