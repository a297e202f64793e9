"""Barriers of the last steps: how often, when last, and for which parameters."""

from __future__ import annotations

import pytest

from hocket.runtime.observe import barriers as module
from hocket.runtime.observe.barriers import WINDOW, Barriers


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where barriers are met, the next one first; else nowhere in a script."""
    found: list[str] = []
    monkeypatch.setattr(module, "place_in_script", lambda: found.pop(0) if found else "")
    return found


def test_a_barrier_met_once_is_counted_and_forgotten_after_the_last_steps() -> None:
    barriers = Barriers()
    for step in range(1, 11 + WINDOW):
        barriers.steps = step
        if step == 10:
            barriers.meet("gradients were read", ["a.weight"])
        expected = []
        if step >= 10:
            window = f"{min(step, WINDOW)} steps" if step > 1 else "1 step"
            expected = [f"gradients were read: in 1 of the last {window}, last in step 10, for a.weight"]
        assert barriers.lines() == (expected if step < 10 + WINDOW else [])


def test_parameters_of_all_meetings_are_named_and_the_rest_counted() -> None:
    barriers = Barriers()
    for step in range(1, 6):
        barriers.steps = step
        barriers.meet("read", [f"layer{step}.weight"])
        barriers.meet("read", [f"layer{step}.weight"])  # twice in one step
    assert barriers.lines() == [
        "read: in 5 of the last 5 steps, last in step 5, for layer1.weight, layer2.weight, layer3.weight"
        " and 2 more"
    ]


def test_a_barrier_for_no_parameter_in_particular_is_for_all() -> None:
    barriers = Barriers()
    barriers.steps = 1
    barriers.meet("step hooks")
    assert barriers.lines() == ["step hooks: in 1 of the last 1 step, last in step 1, for every parameter"]


def test_what_stands_is_told_for_ever() -> None:
    barriers = Barriers()
    barriers.stand("in parts", ["w"])
    barriers.steps = 10 * WINDOW
    assert barriers.lines() == ["in parts: in every step, for w"]


def test_a_log_hears_of_each_reason_once() -> None:
    told: list[str] = []
    barriers = Barriers()
    barriers.report = told.append
    for step in range(1, 2 * WINDOW):
        barriers.steps = step
        barriers.meet("read", ["w"])
    assert told == ["barrier: read: in step 1, for w"]


def test_memory_does_not_grow_with_steps() -> None:
    barriers = Barriers()
    for step in range(1, 10 * WINDOW):
        barriers.steps = step
        barriers.meet("read", ["w"])
    assert len(barriers._steps_of_reason["read"]) <= WINDOW


def test_a_place_is_looked_for_when_a_reason_is_new_or_comes_back(places: list[str]) -> None:
    places += ["a.py:1 (norm)", "a.py:2", "a.py:3"]
    told: list[str] = []
    barriers = Barriers(told.append)
    for step in range(1, 11):
        barriers.steps = step
        barriers.meet("read", ["w"])
    assert told == ["barrier: read, first at a.py:1 (norm): in step 1, for w"]
    assert barriers.lines() == [
        "read, first at a.py:1 (norm): in 10 of the last 10 steps, last in step 10, for w"
    ]
    barriers.steps = 10 + WINDOW
    barriers.meet("read", ["w"])
    (line,) = barriers.lines()
    assert line.startswith("read, first at a.py:2: in 1 of ")
    assert places == ["a.py:3"]


def test_parameters_are_held_where_each_step_met_barriers_for_all_of_them() -> None:
    barriers = Barriers()
    assert not barriers.each_step_held(["a", "b"])
    for step in range(1, 2 * WINDOW):
        barriers.steps = step
        barriers.meet("norm", ["a"])
        barriers.meet("read", ["b", "c"])
    assert barriers.each_step_held(["a", "b"])
    assert not barriers.each_step_held(["a", "d"])
    barriers.steps += 1
    assert not barriers.each_step_held(["a", "b"])
    barriers.meet("closure")
    assert barriers.each_step_held(["a", "b"])
    assert barriers.each_step_held(["a", "d"]) is False
