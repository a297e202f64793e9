"""How fast planners, the simulator and the reader are, each beside its naive twin in the same run."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from hocket.bench.speed.timed_steps import inception_like
from hocket.graph import load_step, save_step
from hocket.graph.flat_plan import flatten
from hocket.network import Network
from hocket.planner import plan, policies_of
from hocket.planner.search import SearchEnd, climb
from hocket.planner.search_starts import starts
from hocket.planner.tac import tac_order
from hocket.reproduce.steps import derived as k80
from hocket.sim import simulate
from hocket.sim.evaluator import PlanEvaluator
from tests.naive import tictac
from tests.naive.list_schedule import simulate_step

NETWORK = Network(bandwidth_bps=10e9, num_workers=8)


@pytest.mark.parametrize(
    ("operations", "parameters"),
    [(1_000, 100), (4_655, 363), (10_000, 500), (30_000, 1_000), (100_000, 2_000)],
)
def test_tac(benchmark, operations: int, parameters: int) -> None:  # type: ignore[no-untyped-def]
    """From a graph in memory to a plan in memory."""
    graph = inception_like(operations, parameters)
    plan(graph, NETWORK, "tac")
    benchmark.extra_info.update(operations=graph.num_operations, parameters=graph.num_parameters)
    benchmark.pedantic(plan, args=(graph, NETWORK, "tac"), rounds=7)


def test_tac_beside_its_naive_twin(benchmark) -> None:  # type: ignore[no-untyped-def]
    graph = inception_like(480, 40)
    transfer = graph.parameter_bytes * 8 / 1.25e9
    started = time.perf_counter()
    expected = tictac.tac_order(graph, transfer)
    naive_s = time.perf_counter() - started
    assert tac_order(graph, transfer).tolist() == expected
    benchmark.pedantic(tac_order, args=(graph, transfer), rounds=20)
    print(
        f"\nTAC, 480 operations, 40 parameters: naive twin / ours = {naive_s / benchmark.stats['median']:.0f}"
    )


def test_simulator_beside_its_naive_twin(benchmark) -> None:  # type: ignore[no-untyped-def]
    """Operations and transfers per second with 8 workers; the twin on a graph that it can bear."""
    small, large = inception_like(160, 20, samples=1), inception_like(4_000, 300)
    schedule = plan(small, NETWORK, "tac")
    ours = simulate(small, schedule, NETWORK, iterations=1).row
    started = time.perf_counter()
    naive_end = simulate_step(small, schedule, NETWORK, [0] * 8)
    naive_rate = ours.events / (time.perf_counter() - started)
    assert ours.iteration_s == pytest.approx(naive_end, abs=1e-6)

    schedule = plan(large, NETWORK, "tac")
    row = benchmark.pedantic(
        simulate, args=(large, schedule, NETWORK), kwargs={"iterations": 50}, rounds=7, warmup_rounds=1
    ).row
    rate = row.events / benchmark.stats["median"]
    print(f"\nsimulator: {rate / 1e6:.2f} M events/s, naive twin {naive_rate / 1e3:.2f} k events/s")


@pytest.mark.parametrize(
    ("architecture", "barrier"), [("ps", "step"), ("ps", "parameter"), ("allreduce", "step")]
)
def test_search_evaluations(benchmark, architecture: str, barrier: str) -> None:  # type: ignore[no-untyped-def]
    """How many plans a second a search judges on ResNet-50 v1, moves included; the twin judges one."""
    graph = k80("resnet50_v1", 32)
    network = Network(bandwidth_bps=10e9, startup_s=50e-6, num_workers=8)
    ours = barrier if architecture == "ps" else None
    plans = [plan(graph, network, policy, barrier=ours) for policy in policies_of(architecture)]
    judge = PlanEvaluator(graph, network, architecture, barrier)
    first = starts(graph, network, plans, judge.chunks)

    def evaluate() -> float:
        found = climb(graph, network, judge, first, SearchEnd(budget_s=60.0, max_evaluations=3_000))
        return found.evaluations / found.wall_s

    rate = benchmark.pedantic(evaluate, rounds=5, warmup_rounds=1)
    rates = [3_000 / seconds for seconds in benchmark.stats.stats.data]
    print(f"\nsearch, {architecture}, barrier {barrier}: {min(rates):.0f} to {max(rates):.0f} evaluations/s")
    if (architecture, barrier) == ("ps", "step"):
        started = time.perf_counter()
        end = simulate_step(graph, plans[0], Network(bandwidth_bps=10e9 / 8, startup_s=50e-6), [0])
        print(f"naive twin, one worker at an eighth: {1 / (time.perf_counter() - started):.2f} evaluations/s")
        assert judge.seconds(flatten(plans[0], graph)) == pytest.approx(end, abs=1e-6)
    assert rate > 0


def test_reading_100_000_operations(benchmark, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    save_step(inception_like(100_000, 2_000), tmp_path / "step.json")
    graph = benchmark.pedantic(load_step, args=(tmp_path / "step.json",), rounds=7)
    assert graph.num_operations == 100_000
    print(f"\nread and validated {(tmp_path / 'step.json').stat().st_size / 1e6:.0f} MB")


@pytest.mark.parametrize("workers", [1, 4, 16, 64])
def test_simulator_as_workers_grow(benchmark, workers: int) -> None:  # type: ignore[no-untyped-def]
    graph = inception_like(4_000, 300)
    network = Network(bandwidth_bps=10e9, num_workers=workers)
    schedule = plan(graph, network, "tac")
    row = benchmark.pedantic(
        simulate, args=(graph, schedule, network), kwargs={"iterations": 10}, rounds=5, warmup_rounds=1
    ).row
    benchmark.extra_info["M events/s"] = row.events / benchmark.stats["median"] / 1e6
    print(f"\n{workers} workers: {row.events / benchmark.stats['median'] / 1e6:.2f} M events/s")
    assert np.isfinite(row.iteration_s)
