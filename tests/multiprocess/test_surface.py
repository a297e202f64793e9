"""Scripts written for DistributedDataParallel: its names on a distributed model do as on the wrapper."""

from __future__ import annotations

import pytest

from tests.multiprocess.launch import run

pytestmark = pytest.mark.slow

CASES = "tests.multiprocess.surface_cases"
NAMES = ("accumulation_by_the_flag", "the_module_evaluates_and_saves")


@pytest.mark.parametrize("name", NAMES)
def test_names_of_ddp_do_as_they_did(name: str) -> None:
    assert run(f"{CASES}:{name}") == [[], []]


def test_the_first_ranks_network_is_that_of_all() -> None:
    assert run(f"{CASES}:the_network_of_one_rank", of=0) == [[123e6, 2]] * 2
    measured, other = run(f"{CASES}:the_network_of_one_rank", of=1)
    assert measured == other
    assert measured[0] != 123e6
