"""The choice of a plan by real ranks."""

from __future__ import annotations

import pytest

from tests.multiprocess.launch import run

CASES = "tests.multiprocess.choice_cases"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("measured", "world"), [(False, 2), (True, 2), (False, 3)])
def test_all_ranks_settle_on_one_plan_within_sixty_steps(measured: bool, world: int) -> None:
    found = run(f"{CASES}:steps_to_settle", world=world, measured=measured)
    assert all(each == found[0] for each in found)
    told = found[0]
    assert told["steps"] <= 61  # it is the begin of the step after the last one that says so
    # Two steps learn, four are profiled.
    assert told["phases"][:3] == [[0, "learning"], [2, "profiling"], [6, "planning"]]
    assert measured or [6, "trying"] in told["phases"]
