"""``hocket.shard`` against torch's own ``fully_shard``: the same parameters, whatever the plan."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.multiprocess.launch import Ranks, run

CASES = "tests.multiprocess.sharding_cases"
MODELS_ON_RANKS = [
    ("gpt", 2),
    ("resnet", 2),
    pytest.param("gpt", 4, marks=pytest.mark.long),
    pytest.param("resnet", 4, marks=pytest.mark.long),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "world"), MODELS_ON_RANKS)
def test_parameters_after_20_steps_are_bitwise_those_of_torchs_sharding(kind: str, world: int) -> None:
    for found in run(f"{CASES}:every_way", world=world, timeout_s=290, kind=kind):
        assert not any(found.values()), found


@pytest.mark.slow
@pytest.mark.long
def test_blocks_that_are_computed_again_come_out_bitwise_as_torchs() -> None:
    for found in run(f"{CASES}:every_way", timeout_s=290, kind="gpt, recomputing"):
        assert not any(found.values()), found


@pytest.mark.parametrize(
    ("kind", "world"),
    [("gpt", 2), *(pytest.param(*each, marks=pytest.mark.long) for each in (("resnet", 2), ("gpt", 4)))],
)
def test_compiled_models_come_out_bitwise_as_torchs(kind: str, world: int) -> None:
    for found in run(f"{CASES}:compiled", world=world, timeout_s=290, kind=kind):
        assert not any(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "clipped"),
    [
        ("gpt", True),
        ("resnet", False),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("gpt", False), ("resnet", True))),
    ],
)
def test_a_checkpoint_is_loaded_under_another_plan(kind: str, clipped: bool, tmp_path: Path) -> None:
    for found in run(f"{CASES}:checkpoint", kind=kind, folder=str(tmp_path), clipped=clipped):
        assert found == {"plans": ["batched", "fsdp"], "torch": [], "loaded": []}


def test_a_sharded_gpt_comes_out_bitwise_as_torchs() -> None:
    assert run(f"{CASES}:parity", kind="gpt", plan="batched") == [[], []]


@pytest.mark.slow
def test_mixed_precision_is_torchs() -> None:
    for found in run(f"{CASES}:mixed", timeout_s=290):
        assert not any(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("sync", [False, True])
def test_accumulated_gradients_are_torchs(sync: bool) -> None:
    assert run(f"{CASES}:accumulation", sync=sync) == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["without_sync", "steps_in_backward", "skipped_in_evaluation"])
def test_what_reads_gradients_or_parameters_early_or_late_finds_torchs(case: str) -> None:
    assert run(f"{CASES}:{case}") == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_sums_of_shares_are_those_of_gloos_reduce_scatter(world: int) -> None:
    for found in run(f"{CASES}:sums", world=world):
        assert not any(found.values()), found


@pytest.mark.slow
def test_shards_inside_of_replicas_come_out_bitwise_as_torchs() -> None:
    assert run(f"{CASES}:replicas", world=4) == [[]] * 4


@pytest.mark.slow
def test_an_optimizer_of_before_is_taken_over_and_every_rank_begins_as_the_first() -> None:
    assert run(f"{CASES}:taken_over") == [{"same": True, "differences": []}] * 2


def test_what_differs_between_ranks_is_refused_on_all_of_them() -> None:
    first, second = run(f"{CASES}:refused")
    assert first == second
    assert first["model"].startswith("parameter 0 differs: rank 0 has 0.weight (4, 4) float32, rank 1 has")
    assert first["plan"].startswith("unit of the plan 0 differs: rank 0 has token_embedding.weight")
    assert first["policy"] == (
        "plan differs: rank 0 has 'auto', rank 1 has a given plan; give every rank the same"
    )


def test_a_timeline_and_a_report_tell_what_ran_beside_what() -> None:
    found = run(f"{CASES}:overlap")[0]
    kinds = [tuple(kind) for kind in found["kinds"]]
    assert ("compute", "forward") in kinds
    assert ("compute", "backward") in kinds
    assert ("compute", "update") in kinds
    assert ("compute", "wait") in kinds
    assert ("all-gathers", "pull") in kinds
    assert ("reduce-scatters", "reduce") in kinds
    assert found["full"] == found["simulated_full"]
    assert found["full"] <= found["held"] <= found["simulated_held"]
    assert found["held_at_end"] == 0
    assert found["ordered"]
    assert found["explain"][0].startswith("plan 'batched', settled: 3 units, 1 of them resharded")
    assert any("waiting for all-gathers" in line for line in found["explain"])
    assert found["repr"].startswith("Handle of ")


@pytest.mark.slow
def test_auto_learns_changes_prefetch_at_once_and_keeps_other_units_for_the_next_run(tmp_path: Path) -> None:
    first, second = run(f"{CASES}:learned", folder=str(tmp_path))
    for found in (first, second):
        assert found["first"]["policies"] == ["fsdp", "two ahead"]
        assert found["first"]["next"] == "batched"
        assert found["first"]["phases"] == ["profiling", "settled"]
        assert found["first"]["profile"] == [True, True]
        assert found["second"]["policies"] == ["batched", "batched"]
        assert found["second"]["next"] is None
        assert found["second"]["phases"] == ["settled", "settled"]
        assert found["first"]["differences"] == found["second"]["differences"] == []
    assert any(line.startswith("the next run begins with 'batched'") for line in first["first"]["explain"])
    assert any("it was planned on 20" in line for line in first["second"]["explain"])
    assert first["kept"] == 1


@pytest.mark.slow
def test_where_no_plan_can_be_made_torchs_units_stay_and_why_is_said(tmp_path: Path) -> None:
    for found in run(f"{CASES}:learned", folder=str(tmp_path), fails=True):
        for each in (found["first"], found["second"]):
            assert each["policies"] == ["fsdp", "fsdp"]
            assert each["differences"] == []
            assert any("nothing can be planned today" in line for line in each["explain"])
        assert found["kept"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_killed_rank_ends_all_in_time(world: int, tmp_path: Path) -> None:
    ranks = Ranks(f"{CASES}:trains_until_killed", world, {"folder": str(tmp_path)}, tmp_path)
    with contextlib.ExitStack() as ending:
        ending.callback(ranks.end)
        deadline_s = time.monotonic() + 100
        while not all((tmp_path / f"under-way-{rank}").exists() for rank in range(world)):
            assert time.monotonic() < deadline_s, "\n".join(map(ranks.output, range(world)))
            time.sleep(0.1)
        ranks.processes[1].kill()
        statuses = ranks.wait(60)
    assert all(statuses), statuses


def test_a_rank_that_leaves_while_a_transfer_is_under_way_ends_well() -> None:
    assert run("tests.multiprocess.ending_cases:left_with_a_transfer", forked=False) == [True, True]
