"""Settings of commands that tests call in their own process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take HOCKET_LOG back, which ``-v`` sets for the processes that a command starts."""
    monkeypatch.setenv("HOCKET_LOG", "")
    monkeypatch.delenv("HOCKET_LOG")
