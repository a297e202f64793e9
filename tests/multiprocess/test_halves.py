"""Plans that sum gradients up in halves: what a step that clips has of DistributedDataParallel, and when."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.multiprocess.halves_cases import CASES
from tests.multiprocess.launch import Ranks, run

MODULE = "tests.multiprocess.halves_cases"
OFTEN = ["clipping_by_torch", "scaled_and_clipped", "norms_on_one_rank", "unused_parameters"]
SELDOM = [case.__name__ for case in CASES if case.__name__ not in OFTEN]


@pytest.fixture(scope="module")
def often() -> list[dict[str, list[str]]]:
    return run(f"{MODULE}:several", names=OFTEN)


@pytest.fixture(scope="module")
def seldom() -> list[dict[str, list[str]]]:
    return run(f"{MODULE}:several", names=SELDOM, timeout_s=500)


@pytest.mark.parametrize("name", OFTEN)
def test_parameters_are_bitwise_those_of_ddp_by_the_same_norm(often: Any, name: str) -> None:
    assert [found[name] for found in often] == [[], []]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SELDOM)
def test_whatever_a_script_does_is_bitwise_ddps(seldom: Any, name: str) -> None:
    assert [found[name] for found in seldom] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("world", [3, pytest.param(4, marks=pytest.mark.long)])
def test_more_ranks_are_as_ddp_to_the_last_digits(world: int) -> None:
    assert run(f"{MODULE}:several_ranks", world=world) == [[]] * world


def test_gradients_are_gathered_in_the_next_forward_pass() -> None:
    (found, _) = run(f"{MODULE}:gathered_late")
    assert found == []


@pytest.mark.parametrize(
    ("how", "halves"),
    [("clipped", True), ("clipped by the largest", True), ("logged on one", True), ("plain", False)],
)
def test_plans_are_in_halves_where_steps_take_norms(how: str, halves: bool) -> None:
    found = run(f"{MODULE}:planned", how=how)
    assert found == [["caramel", halves, int(halves), []]] * 2


@pytest.mark.slow
def test_compiled_passes_clip_as_eager_ones() -> None:
    assert run(f"{MODULE}:compiled") == [[], []]


@pytest.mark.slow
def test_a_rank_without_batches_takes_part() -> None:
    assert run(f"{MODULE}:uneven") == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param("kill", marks=pytest.mark.long), "kill in backward"])
def test_a_rank_that_goes_is_named_by_those_that_wait_for_the_norm(tmp_path: Path, how: str) -> None:
    ranks = Ranks(f"{MODULE}:failing", 2, {"how": how}, tmp_path)
    assert ranks.wait(120) == [0, -signal.SIGKILL], ranks.output(0)
    assert ranks.result(0).startswith("training stopped: rank 1 is gone")
