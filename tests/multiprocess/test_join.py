"""Uneven inputs within ``join``: bit by bit what DistributedDataParallel's does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.multiprocess.join_cases import CASES
from tests.multiprocess.launch import run

pytestmark = pytest.mark.slow

MODULE = "tests.multiprocess.join_cases"


@pytest.fixture(scope="module")
def of_cases() -> list[dict[str, list[str]]]:
    return run(f"{MODULE}:all_of_them")


@pytest.mark.parametrize("name", [case.__name__ for case in CASES])
def test_uneven_inputs_are_as_with_ddp(of_cases: Any, name: str) -> None:
    assert [found[name] for found in of_cases] == [[], []]


@pytest.mark.parametrize("world", [2, 3])
def test_plans_are_tried_where_ranks_join(world: int) -> None:
    found = run(f"{MODULE}:plans_are_tried_between", world=world)
    assert found[0][0] is True
    assert all(each == found[0] for each in found)
