"""How fast a shared cluster is simulated: the paper's workload by policy and placement, and how cost grows.

Compiling is left out of what a run says it took.
"""

from __future__ import annotations

import statistics

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.simulate import ClusterRun, simulate
from hocket.cluster.workloads import overlapped, paper_workload

POLICIES = ("srsf-1", "srsf-2", "srsf-3", "ada-srsf", "kway", "psrsf", "srpt", "fifo", "tiresias")
PLACEMENTS = ("rand", "ff", "ls", "lwf-1", "earliest")
SEED = 0
ROUNDS = 3


def timed(
    jobs: int, servers: int, placement: str, policy: str, rounds: int = ROUNDS, *, overlap: bool = False
) -> ClusterRun:
    """The middle one of some runs of the paper's mix; arrivals as dense as in the paper per server."""
    period_s = max(1, round(1200 * (jobs / 160) / (servers / 16)))
    workload = paper_workload(seed=SEED, num_jobs=jobs, period_s=period_s)
    workload = overlapped(workload) if overlap else workload
    cluster = Cluster(num_servers=servers, gpus_per_server=4)
    runs = [simulate(workload, cluster, placement=placement, policy=policy) for _ in range(rounds)]
    middle = statistics.median_low([run.wall_s for run in runs])
    return next(run for run in runs if run.wall_s == middle)


def line(label: str, run: ClusterRun) -> None:
    jct_s = float((run.finish_s - run.arrival_s).mean())
    print(f"| {label} | {run.wall_s:.3f} | {run.events:,} | {jct_s:.1f} |")


@pytest.mark.benchmark(group="cluster")
def test_paper_workload_by_policy_and_placement() -> None:
    print("\n| placement, policy | s | events | average JCT (s) |")
    for policy in POLICIES:
        line(f"lwf-1, {policy}", timed(160, 16, "lwf-1", policy))
    for placement in PLACEMENTS:
        for policy in ("ada-srsf", "tiresias"):
            line(f"{placement}, {policy}", timed(160, 16, placement, policy))


@pytest.mark.benchmark(group="cluster")
@pytest.mark.timeout(3600)
def test_cost_by_jobs_and_servers() -> None:
    print("\n| jobs, servers, policy | s | events | average JCT (s) |")
    for jobs, servers in ((160, 16), (625, 62), (2500, 250), (10000, 1000), (10000, 250)):
        for policy in ("ada-srsf", "psrsf", "tiresias"):
            line(f"{jobs:,}, {servers:,}, {policy}", timed(jobs, servers, "lwf-1", policy, 1))


@pytest.mark.benchmark(group="cluster")
@pytest.mark.timeout(3600)
def test_paper_workload_with_overlap() -> None:
    print("\n| lwf-1 with overlap, policy | s | events | average JCT (s) |")
    for policy in POLICIES:
        line(policy, timed(160, 16, "lwf-1", policy, overlap=True))
