"""Lines on the steps of a script that is measured, and on how long all steps take."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hocket.cli.profile_pace import StepPace
from hocket.cli.profile_script import StepLines
from hocket.signals import Stop


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


@pytest.mark.parametrize("each_s", [4.0, 0.5])
def test_steps_that_take_long_are_told_of_fewer_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], each_s: float
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = StepPace("mine.py:job", 20)
    for done in range(1, 44):
        now[0] += each_s if done > 1 else 20.0  # the first one warms up
        pace.report(done, 44)
    line = "mine.py:job: a step takes 4 s, so 44 take about 3.2 min; --steps 5 measures fewer"
    assert capsys.readouterr().err.splitlines() == ([line] if each_s == 4.0 else [])


def test_a_stop_says_what_was_measured_and_how_to_be_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = StepPace("mine.py:job", 20)

    def stopped() -> None:
        with pace.told_when_stopped():
            now[0] = 8.0
            pace.report(2, 44)
            raise Stop(143)

    with pytest.raises(Stop):
        stopped()
    assert capsys.readouterr().err == (
        "hocket: mine.py:job: stopped after 8 s, 2 of 44 steps: nothing is written; give --steps 5, or more"
        " time\n"
    )
