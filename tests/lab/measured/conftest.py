"""A lab's network measured in a third of the time, for tests that replay on it."""

from __future__ import annotations

import pytest

from hocket.bench.replay import replayed_steps


@pytest.fixture
def measured_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements of a lab are of few sizes, each seldom repeated: nothing else runs beside these tests."""
    monkeypatch.setattr(
        replayed_steps, "_MEASURE", ("--largest", "4MB", "--repeats", "5", "--concurrent", "1")
    )
