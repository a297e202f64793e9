"""Lines on the steps of a script that is measured."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hocket.cli.profile_script import StepLines


def test_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    lines = StepLines(Path("train.py"))
    for done in range(1, 9):
        now[0] += 3.0
        lines.report(done, 21)
    assert capsys.readouterr().err.splitlines() == [
        "train.py: 4 of 21 steps measured after 12 s",
        "train.py: 8 of 21 steps measured after 24 s",
    ]
