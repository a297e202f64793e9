"""Settings of every test: the environment that processes started by tests get."""

from __future__ import annotations

import os

import pytest

# With it Python writes a line and its end apart: lines of processes that share a pipe run into each other.
os.environ.pop("PYTHONUNBUFFERED", None)

# A user's choices of plans are neither read nor added to; tests of what is kept name a folder of their own.
os.environ["HOCKET_CACHE"] = "off"


@pytest.fixture(autouse=True)
def _no_width() -> None:
    """Let commands print as into a pipe: leave out the width that a shell, or pytest-xdist, has exported.

    Without monkeypatch, which would be undone behind the fixtures of a test's own file then.
    """
    os.environ.pop("COLUMNS", None)
