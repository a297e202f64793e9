"""Jobs that wait for a faster type of GPU, against the naive twin of clusters."""

from __future__ import annotations

import dataclasses
import random

import msgspec
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.gpu_type import GpuType
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.simulate import simulate
from tests.naive import cluster as naive
from tests.property.test_cluster import PLACEMENTS, POLICIES, drawn_scheduling, job_set, with_users
from tests.strategies import examples


def crowded(seed: int, *, ties: bool) -> tuple[JobSet, Cluster]:
    """More jobs than GPUs, of which two or three types differ by up to forty times."""
    rng = random.Random(seed)
    names = "abc"[: rng.randint(2, 3)]
    per_server, servers = rng.randint(1, 2), rng.randint(1, 2)
    num_gpus = servers * per_server
    cluster = Cluster(
        num_servers=servers * len(names),
        gpus_per_server=per_server,
        startup_s=0.0 if ties else 0.0123,
        per_byte_s=1e-9,
        gpu_types=tuple(GpuType(name=name, num_gpus=num_gpus) for name in names),
    )

    def job_on(job: Job, i: int) -> Job:
        of = rng.sample(names, rng.randint(1, len(names)))
        speeds = {name: rng.choice([0.25, 0.5, 2.0, 4.0]) if ties else rng.uniform(0.1, 4.0) for name in of}
        gpus, iterations = rng.randint(1, min(3, num_gpus)), rng.randint(1, 20)
        return msgspec.structs.replace(job, id=f"j{i}", speeds=speeds, gpus=gpus, iterations=iterations)

    drawn = [job for _ in range(3) for job in job_set(rng, num_gpus, ties=ties).jobs][:12]
    return JobSet(jobs=tuple(job_on(job, i) for i, job in enumerate(drawn))), cluster


def compared(seed: int, placement: str, policy: str, *, ties: bool) -> bool:
    """Simulate a case and its twin, which agree; whether it is another run than without waiting."""
    jobs, cluster = crowded(seed, ties=ties)
    drawn = drawn_scheduling(random.Random(seed), placement, policy, seed)
    chosen: Scheduling = dataclasses.replace(drawn, wait_for_faster=True)
    jobs, chosen = with_users(seed, jobs, dataclasses.replace(chosen, jobs_per_gpu=1 if seed % 4 else 2))
    run = simulate(jobs, cluster, chosen)
    twins = naive.simulate(jobs, cluster, chosen).runs
    for i, twin in enumerate(twins):
        assert run.gpus[i] == tuple(divmod(g, cluster.gpus_per_server) for g in twin.gpus)
        assert twin.start is not None
        assert twin.finish is not None
        assert run.start_s[i] == pytest.approx(float(twin.start), abs=1e-9)
        assert run.finish_s[i] == pytest.approx(float(twin.finish), abs=1e-9)
    at_once = simulate(jobs, cluster, dataclasses.replace(chosen, wait_for_faster=False))
    return not np.array_equal(at_once.finish_s, run.finish_s)


@examples(120)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    policy=st.sampled_from(POLICIES),
    ties=st.booleans(),
)
def test_jobs_that_wait_for_a_type_agree_with_their_twin(
    seed: int, placement: str, policy: str, ties: bool
) -> None:
    if compared(seed, placement, policy, ties=ties):
        event("a job waits")


def test_jobs_wait_in_many_of_these_cases() -> None:
    waiting = [compared(seed, "lwf-1", "srsf-1", ties=seed % 4 > 1) for seed in range(24)]
    assert sum(waiting) >= 8
