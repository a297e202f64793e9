"""Drift of settled steps: by how much, for how long, and how often a choice is looked at again."""

from __future__ import annotations

import pytest

from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training import plan_drift
from hocket.runtime.training.plan_drift import Drift, steps_until_drift


def drifted(windows: list[float]) -> list[bool]:
    drift = Drift()
    found = []
    for seconds in windows:
        drift.add(seconds)
        found.append(drift.ratio > 0)
    return found


@pytest.mark.parametrize("factor", [1.16, 3.0, 0.85, 0.1])
def test_steps_that_have_moved_for_two_hundred_are_looked_at(factor: float) -> None:
    assert drifted([1.0, 1.0, *([factor] * 4)]) == [False, False, False, False, False, True]


@pytest.mark.parametrize(
    "windows", [[1.0, 1.14] * 8, [1.0, *([1.3, 1.3, 1.3, 1.0] * 4)], [1.0, *([1.3, 0.7] * 8)]]
)
def test_steps_that_move_little_or_for_a_while_are_not(windows: list[float]) -> None:
    assert not any(drifted(windows))


def test_the_ratio_is_of_the_first_window() -> None:
    drift = Drift()
    for seconds in (2.0, 3.0, 3.0, 3.0, 3.0):
        drift.add(seconds)
    assert drift.ratio == pytest.approx(1.5)


@pytest.mark.parametrize(("rest", "steps"), [(0, 250), (1000, 1000)])
def test_a_choice_is_looked_at_again_after_its_rest(
    rest: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On all ranks at the same step: that is rank 0's, which tells so at the end of a window."""
    now_s, told = [0.0], []

    def broadcast(value: float, _: object) -> float:
        told.append(value)
        return value

    recorder = SpanRecorder({})
    monkeypatch.setattr(recorder, "now", lambda: now_s[0])
    monkeypatch.setattr(plan_drift, "broadcast_number", broadcast)
    course = steps_until_drift(rest, recorder, None)  # type: ignore[arg-type]

    def train() -> None:
        for step in range(2000):
            next(course)
            taken.append(step)
            now_s[0] += 1.0 if step < 50 else 1.5

    taken: list[int] = []
    with pytest.raises(StopIteration) as end:
        train()
    assert (len(taken), end.value.value) == (steps, pytest.approx(1.5))
    assert len(told) == steps / plan_drift.WINDOW_STEPS
