"""Commands in tests print as into a pipe, whatever the terminal of the tests is."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the width out that a shell, or what divides the tests among processes, has exported."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take HOCKET_LOG back, which ``-v`` sets for the processes that a command starts."""
    monkeypatch.setenv("HOCKET_LOG", "")
    monkeypatch.delenv("HOCKET_LOG")
