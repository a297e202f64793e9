"""What planners and simulators are timed with, and that figures are those of the times."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hocket.bench.speed.speed import bench_plan, bench_simulation, on_cores
from hocket.bench.speed.speed_table import plan_table, simulation_table
from hocket.bench.speed.timed_steps import inception_like, load_target
from hocket.errors import HocketError, UnknownNameError
from hocket.graph import save_step
from hocket.network import Network

NETWORK = Network(bandwidth_bps=10e9, num_workers=3)


@pytest.mark.parametrize("number", [64, 1000, 1001])
def test_a_number_is_a_step_of_about_so_many_operations(number: int) -> None:
    graph = load_target(str(number))
    assert graph.num_operations <= number
    assert graph.num_operations > 0.9 * number
    assert all(len(graph.reads.row(i)) <= 1 for i in range(graph.num_operations))
    assert (graph.durations_s > 0).all()
    assert (graph.durations_s[:, 0] != graph.durations_s[:, 1]).any()


def test_a_model_is_derived_and_a_file_is_read(tmp_path: Path) -> None:
    derived = load_target("alexnet_v2")
    assert (derived.model, derived.device, derived.num_samples) == ("alexnet_v2", "k80", 5)
    save_step(derived, tmp_path / "step.json")
    assert load_target(str(tmp_path / "step.json")).operation_names == derived.operation_names


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("63", "63 operations is not between 64 and 1000000"),
        ("9" * 5000, "is not between 64 and 1000000"),
        ("resnet", "step 'resnet' is unknown; did you mean"),
        ("none.json", "none.json: cannot be read"),
    ],
)
def test_what_names_no_step_is_refused(target: str, said: str) -> None:
    with pytest.raises(HocketError, match=said):
        load_target(target)


def test_every_policy_is_timed_on_every_step_in_turns() -> None:
    graphs = {"small": inception_like(64, 4), "large": inception_like(320, 8)}
    done: list[tuple[int, int]] = []
    rows = bench_plan(
        graphs, NETWORK, ["tic", "caramel"], repeats=3, progress=lambda *report: done.append(report)
    )
    assert [(row.graph, row.policy, row.architecture) for row in rows] == [
        *(("small", "tic", "ps"), ("small", "caramel", "allreduce")),
        *(("large", "tic", "ps"), ("large", "caramel", "allreduce")),
    ]
    assert done == [(k, 12) for k in range(1, 13)]
    for row in rows:
        assert row.operations == graphs[row.graph].num_operations
        assert len(row.repeats_s) == 3
        assert 0 < min(row.repeats_s) <= row.plan_s.low <= row.plan_s.median <= row.plan_s.high
        assert row.plan_s.median == sorted(row.repeats_s)[1]
        assert row.per_operation_s == pytest.approx(row.plan_s.median / row.operations)
        assert row.compile_s >= 0
    assert plan_table(rows).row_count == 4


def test_rates_are_events_over_the_clock_and_grow_with_workers_and_steps() -> None:
    networks = [NETWORK, Network(bandwidth_bps=10e9, num_workers=6)]
    rows = bench_simulation(
        {"small": inception_like(64, 4)}, networks, "tac", iterations=2, steps=4, repeats=1
    )
    assert [(row.engine, row.workers, row.steps) for row in rows] == [
        *(("simulate", 3, 2), ("predict", 3, 4)),
        *(("simulate", 6, 2), ("predict", 6, 4)),
    ]
    for row in rows:
        (seconds,) = row.repeats_s
        assert row.step_s.median == pytest.approx(seconds / row.steps)
        assert row.events_per_s.low == row.events_per_s.high == pytest.approx(row.events / seconds)
        # Operations and transfers of every step of every worker.
        assert row.events >= row.workers * row.steps * 8
    simulated = {row.workers: row.events for row in rows if row.engine == "simulate"}
    assert simulated[6] == pytest.approx(2 * simulated[3], rel=0.1)
    assert simulation_table(rows).row_count == 4


def test_a_policy_for_all_reduce_has_no_servers() -> None:
    rows = bench_simulation(
        {"small": inception_like(64, 4)}, [NETWORK], "ddp", iterations=2, steps=2, repeats=1
    )
    assert {(row.architecture, row.servers) for row in rows} == {("allreduce", 0)}


def test_senseless_requests_are_refused() -> None:
    graphs = {"small": inception_like(64, 4)}
    with pytest.raises(UnknownNameError, match="policy 'tak' is unknown; did you mean 'tac'"):
        bench_plan(graphs, NETWORK, ["tak"])
    with pytest.raises(HocketError, match="policy 'tac' is named twice"):
        bench_plan(graphs, NETWORK, ["tac", "tac"])
    with pytest.raises(HocketError, match="0 repeats are not between 1 and 10000"):
        bench_plan(graphs, NETWORK, ["tac"], repeats=0)
    with pytest.raises(UnknownNameError, match="policy 'exact' is unknown"):
        bench_simulation(graphs, [NETWORK], "exact")


def test_cores_are_given_back() -> None:
    allowed = os.sched_getaffinity(0)
    with pytest.raises(ValueError), on_cores(1):  # noqa: PT012
        assert len(os.sched_getaffinity(0)) == 1
        raise ValueError
    assert os.sched_getaffinity(0) == allowed
    with pytest.raises(HocketError, match="0 cores are not between 1 and"), on_cores(0):
        pass
    with pytest.raises(HocketError, match="5000 cores are not between 1 and"), on_cores(5000):
        pass
