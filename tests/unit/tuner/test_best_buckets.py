"""DDP's best bucket size is the one whose simulated step is shortest; its default where none is shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.graph import StepGraph, load_plan, load_step, save_plan
from hocket.network import Network
from hocket.planner.allreduce_baselines import DDP_BUCKETS_MIB, ddp
from hocket.sim import simulate
from hocket.tuner import make_plan, tune
from tests.golden.make import BRANCHES_NETWORK, branches

CNN = load_step(Path(__file__).parents[3] / "docs" / "figures" / "cnn.step.json")


def shortest_s(graph: StepGraph, network: Network, iterations: int) -> dict[int, float]:
    return {
        mib << 20: simulate(
            graph, ddp(graph, network, mib << 20), network, iterations=iterations
        ).row.iteration_s
        for mib in DDP_BUCKETS_MIB
    }


@pytest.mark.parametrize("rate", [1e8, 4e8, 1e10])
def test_it_is_the_size_with_the_shortest_step(rate: float) -> None:
    network = Network(bandwidth_bps=rate, num_workers=2, startup_s=50e-6)
    made = make_plan(CNN, network, "ddp-best").plan
    seconds = shortest_s(CNN, network, 20)
    assert made.bucket_bytes is not None
    row = simulate(CNN, made, network).row
    assert row.iteration_s == seconds[made.bucket_bytes] == min(seconds.values())
    assert row.title == f"ddp-best ({made.bucket_bytes >> 20} MiB)"


def test_where_sizes_make_no_difference_it_is_ddps_default() -> None:
    assert make_plan(branches(), BRANCHES_NETWORK, "ddp-best").plan.bucket_bytes == 25 << 20


def test_tune_ranks_it_by_the_steps_that_it_was_chosen_by() -> None:
    network = Network(bandwidth_bps=4e8, num_workers=2)
    for iterations in (2, 7):
        found = tune(CNN, network, iterations=iterations, budget_s=0.05)
        (row,) = [row for row in found.ranked if row.policy == "ddp-best"]
        assert row.iteration_s == min(shortest_s(CNN, network, iterations).values())
        assert row.bucket_bytes == found.plans["ddp-best"].bucket_bytes


def test_a_plan_file_keeps_the_size_and_others_have_no_such_key(tmp_path: Path) -> None:
    network = Network(bandwidth_bps=4e8, num_workers=2)
    made = make_plan(CNN, network, "ddp-best").plan
    save_plan(made, tmp_path / "best.json")
    assert load_plan(tmp_path / "best.json") == made
    save_plan(make_plan(CNN, network, "ddp").plan, tmp_path / "ddp.json")
    assert "bucket_bytes" not in (tmp_path / "ddp.json").read_text()
