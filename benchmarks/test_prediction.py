"""How fast predictions are, beside the naive twin, and how their cost grows."""

from __future__ import annotations

import time

import msgspec
import pytest

from hocket.bench.speed.timed_steps import inception_like
from hocket.graph import OperationRow, StepGraph, StepRows, step_from_rows
from hocket.graph.io import step_document
from hocket.network import Network, Topology
from hocket.planner import plan
from hocket.predictor import predict
from hocket.reproduce.steps import derived as k80
from hocket.sim.draws import draw_number
from tests.naive import prediction as naive
from tests.property.test_prediction import links_of

NETWORK = Network(bandwidth_bps=10e9, parse_s_per_byte=1e-10, parse_s=2e-5)


def fine_grained(graph: StepGraph, pieces: int) -> StepGraph:
    """Every operation as a chain of that many, as frameworks with smaller operations record it."""
    rows = msgspec.convert(step_document(graph), StepRows)
    operations = []
    for row in rows.operations:
        seconds = row.duration_s if isinstance(row.duration_s, list) else [row.duration_s]
        share = [s / pieces for s in seconds]
        for k in range(pieces):
            last = k == pieces - 1
            operations.append(
                OperationRow(
                    row.name if last else f"{row.name}/{k}",
                    row.phase,
                    share,
                    row.inputs if k == 0 else [f"{row.name}/{k - 1}"],
                    row.reads if k == 0 or row.phase == "update" else [],
                    row.produces if last else [],
                )
            )
    return step_from_rows(msgspec.structs.replace(rows, operations=operations))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["fifo", "tac", "random"])
def test_inception_v3_on_1_to_10_workers(benchmark, policy: str) -> None:  # type: ignore[no-untyped-def]
    """The paper's case: 1 to 10 workers, 1,000 steps each; there 117 s, 100 profiled steps included."""
    graph = fine_grained(k80("inception_v3", 32, samples=20, jitter=0.05), 4)
    assert graph.num_operations >= 3_500
    predict(graph, NETWORK, workers=[1, 2], policy=policy, steps=3, skip=1)
    rows = benchmark.pedantic(
        predict, args=(graph, NETWORK), kwargs={"workers": range(1, 11), "policy": policy}, rounds=3
    )
    events = sum(row.events for row in rows)
    rate = events / benchmark.stats["median"]
    small = k80("inception_v3", 32)
    started = time.perf_counter()
    links, capacity = links_of(Topology.flat(NETWORK))
    job = naive.Job(small, plan(small, NETWORK, "fifo"), NETWORK)
    naive.predict(job, 1, 1, lambda worker, k: 0, links=links, capacity=capacity)
    naive_rate = len(job.resource) / (time.perf_counter() - started)
    print(
        f"\n{policy}: {graph.num_operations} operations, 1 to 10 workers x 1,000 steps: "
        f"{min(benchmark.stats.stats.data):.1f} to {max(benchmark.stats.stats.data):.1f} s, "
        f"{rate / 1e6:.1f} M operations and transfers/s on 2 cores; naive twin {naive_rate / 1e3:.2f} k/s, "
        f"ratio {rate / naive_rate:.0f}"
    )


@pytest.mark.timeout(900)
def test_growth(benchmark) -> None:  # type: ignore[no-untyped-def]
    """Seconds of one prediction of 200 steps a worker, by workers, servers and operations."""
    graphs = {n: inception_like(n, 200, samples=10) for n in (1_000, 4_000, 16_000)}
    cases = [(4_000, w, 1) for w in (1, 4, 16, 64)] + [(4_000, 16, m) for m in (2, 4)]
    cases += [(n, 4, 1) for n in (1_000, 16_000)]

    def seconds(operations: int, workers: int, servers: int) -> float:
        found = []
        for _ in range(3):
            (row,) = predict(
                graphs[operations], NETWORK, workers=[workers], servers=[servers], steps=200, skip=20
            )
            found.append(row.wall_s)
        return min(found)

    seconds(1_000, 1, 1)
    seconds(1_000, 2, 2)
    print()
    for case in cases:
        operations, workers, servers = case
        ms = 1e3 * seconds(*case)
        print(f"{operations:6d} operations, {workers:3d} workers, {servers} servers: {ms:8.0f} ms")
    benchmark.pedantic(seconds, args=(1_000, 1, 1), rounds=1)


def test_kernel_draws_are_even() -> None:
    """The sampling of measured steps: 20 bins, 20,000 draws, each bin within 5 sigma."""
    counts = [0] * 20
    for worker in range(20):
        for step in range(1000):
            counts[int(draw_number(1, worker, step)) % 20] += 1
    assert all(abs(count - 1000) < 5 * (1000 * 0.95) ** 0.5 for count in counts)
