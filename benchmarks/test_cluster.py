"""How fast a shared cluster is simulated: the paper's workload by policy and placement, and how cost grows.

Processor seconds of one process (``time.process_time``), so that others on the machine count little; a run
before the first one compiles. Chunks have the option's default size.
"""

from __future__ import annotations

import time

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.policies.named_policies import POLICY_NAMES
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.simulator.simulate import ClusterRun, simulate
from hocket.cluster.workloads import paper_workload, with_overlap

POLICIES = ("srsf-1", "srsf-2", "srsf-3", *(name for name in POLICY_NAMES if name != "srsf-N"))
PLACEMENTS = ("rand", "ff", "ls", "lwf-1", "earliest")
SEED = 0
ROUNDS = 3


def timed(
    jobs: int, servers: int, placement: str, policy: str, rounds: int = ROUNDS, *, overlap: bool = False
) -> tuple[float, ClusterRun]:
    """The fastest of some runs of the paper's mix; arrivals as dense as in the paper per server."""
    period_s = max(1, round(1200 * (jobs / 160) / (servers / 16)))
    workload = paper_workload(seed=SEED, num_jobs=jobs, period_s=period_s)
    workload = with_overlap(workload) if overlap else workload
    cluster = Cluster(num_servers=servers, gpus_per_server=4)
    least_s = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        run = simulate(workload, cluster, Scheduling(placement=placement, policy=policy))
        least_s = min(least_s, time.process_time() - began)
    return least_s, run


def line(label: str, timing: tuple[float, ClusterRun]) -> None:
    processor_s, run = timing
    jct_s = float((run.finish_s - run.arrival_s).mean())
    print(f"| {label} | {processor_s:.2f} | {run.events:,} | {jct_s:.1f} |", flush=True)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    timed(10, 4, "lwf-1", "srsf-1", 1)


@pytest.mark.benchmark(group="cluster")
@pytest.mark.timeout(3600)
def test_paper_workload_by_policy_and_placement() -> None:
    print("\n| placement, policy | processor s | events | average JCT (s) |")
    for placement in PLACEMENTS:
        for policy in POLICIES:
            line(f"{placement}, {policy}", timed(160, 16, placement, policy))


@pytest.mark.benchmark(group="cluster")
@pytest.mark.timeout(3600)
def test_cost_by_jobs_and_servers() -> None:
    print("\n| jobs, servers, policy | processor s | events | average JCT (s) |")
    for jobs, servers in ((160, 16), (625, 62), (2500, 250), (10000, 1000), (10000, 250)):
        for policy in ("ada-srsf", "psrsf", "tiresias"):
            line(f"{jobs:,}, {servers:,}, {policy}", timed(jobs, servers, "lwf-1", policy, 1))


@pytest.mark.benchmark(group="cluster")
@pytest.mark.timeout(3600)
def test_paper_workload_with_overlap() -> None:
    print("\n| lwf-1 with overlap, policy | processor s | events | average JCT (s) |")
    for policy in POLICIES:
        line(policy, timed(160, 16, "lwf-1", policy, overlap=True))
