"""Settings of every test: the environment that processes started by tests get."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# With it Python writes a line and its end apart: lines of processes that share a pipe run into each other.
os.environ.pop("PYTHONUNBUFFERED", None)

# A user's choices of plans are neither read nor added to; tests of what is kept name a folder of their own.
os.environ["HOCKET_CACHE"] = "off"

# No input is too slow on a busy machine: tests end by their own timeout.
settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _no_width() -> None:
    """Let commands print as into a pipe: leave out the width that a shell, or pytest-xdist, has exported.

    Without monkeypatch, which would be undone behind the fixtures of a test's own file then.
    """
    os.environ.pop("COLUMNS", None)
