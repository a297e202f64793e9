"""The bound of the average JCT: below all that is simulated, and below the best there is."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.cluster.cluster import Cluster
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.results.jct_bound import bound_jct_s
from hocket.cluster.simulator.simulate import simulate
from tests.naive.least_jct import TinyJob, least_average_jct
from tests.property.test_cluster import (
    PLACEMENTS,
    POLICIES,
    cluster_of,
    drawn_scheduling,
    job_set,
    with_numbers,
    with_types,
)
from tests.strategies import examples

ROUNDING = 1 + 1e-9
SMALL = Cluster(num_servers=2, gpus_per_server=1, startup_s=0.0, per_byte_s=1e-9, contention_per_byte_s=0.0)


def some_job(name: str, gpus: int = 1, **changes: float) -> Job:
    fields = {"arrival_s": 0.0, "forward_s": 1.0, "backward_s": 2.0, "size_bytes": 1e9, "memory_bytes": 1e9}
    return Job(id=name, model="toy", gpus=gpus, iterations=4, **(fields | changes))


@examples(300)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    policy=st.sampled_from(POLICIES),
    ties=st.booleans(),
)
def test_nothing_simulated_is_below_it(seed: int, placement: str, policy: str, ties: bool) -> None:
    rng = random.Random(seed)
    cluster = cluster_of(rng, ties=ties)
    jobs = job_set(rng, cluster.num_gpus, ties=ties)
    scheduling = drawn_scheduling(rng, placement, policy, seed)
    jobs, cluster = with_types(rng, jobs, cluster, ties=ties)
    jobs = with_numbers(seed, jobs)
    run = simulate(jobs, cluster, scheduling)
    average_s = float((run.finish_s - run.arrival_s).mean())
    assert bound_jct_s(jobs, cluster, scheduling.jobs_per_gpu) <= average_s * ROUNDING


TINY_JOBS = st.tuples(
    st.integers(0, 3), st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)
)


@examples(60)
@given(st.lists(TINY_JOBS, min_size=1, max_size=3))
def test_the_best_of_all_schedules_is_not_below_it(tiny: list[TinyJob]) -> None:
    jobs = tuple(
        Job(
            id=f"{i}",
            model="toy",
            gpus=gpus,
            iterations=iterations,
            arrival_s=float(arrival),
            forward_s=0.0,
            backward_s=float(computing),
            size_bytes=transfer * 1e9,
            memory_bytes=0.0,
        )
        for i, (arrival, gpus, iterations, computing, transfer) in enumerate(tiny)
    )
    assert bound_jct_s(JobSet(jobs=jobs), SMALL) <= least_average_jct(tuple(tiny)) * ROUNDING


def test_a_job_alone_reaches_it() -> None:
    assert bound_jct_s(JobSet(jobs=(some_job("a"),)), SMALL) == 12.0
    assert bound_jct_s(JobSet(jobs=(some_job("a", 2),)), SMALL) == 16.0


def test_jobs_that_fill_the_cluster_wait_for_each_other() -> None:
    """Two jobs of all GPUs that compute alone: (12 + 24) / 2, of which mean moments and tails know all."""
    jobs = JobSet(jobs=tuple(some_job(name, 2, size_bytes=0.0) for name in "ab"))
    assert bound_jct_s(jobs, SMALL) == pytest.approx(18.0)


@examples(150)
@given(seed=st.integers(0, 2**32), ties=st.booleans(), jobs_per_gpu=st.sampled_from([None, 1, 2]))
def test_it_is_below_that_of_every_choice_of_numbers(seed: int, ties: bool, jobs_per_gpu: int | None) -> None:
    """Jobs whose numbers of GPUs are drawn from their ranges are jobs that have no choice."""
    rng = random.Random(seed)
    cluster = cluster_of(rng, ties=ties)
    jobs, cluster = with_types(rng, job_set(rng, cluster.num_gpus, ties=ties), cluster, ties=ties)
    ranges = with_numbers(seed, jobs)
    least_s = bound_jct_s(ranges, cluster, jobs_per_gpu)

    def chosen(job: Job) -> Job:
        most = max(each.num_gpus for each in cluster.types if job.speed_on(each.name) or not each.name)
        num = rng.randint(job.fewest_gpus, max(job.fewest_gpus, min(job.gpus, most)))
        return msgspec.structs.replace(job, gpus=num, gpus_min=None, iterations=job.iterations_on(num))

    for _ in range(5):
        drawn = JobSet(jobs=tuple(chosen(job) for job in ranges.jobs))
        assert least_s <= bound_jct_s(drawn, cluster, jobs_per_gpu) * ROUNDING


def test_memory_and_places_count() -> None:
    """One computes while the other sends, and ends a turn later; not where one has the GPUs' memory."""
    sharing = [some_job(name, 2, size_bytes=3e9, memory_bytes=1e9) for name in "ab"]
    alone = [some_job(name, 2, size_bytes=3e9, memory_bytes=16e9) for name in "ab"]
    assert bound_jct_s(JobSet(jobs=tuple(sharing)), SMALL) == pytest.approx(25.5)
    assert bound_jct_s(JobSet(jobs=tuple(alone)), SMALL) == pytest.approx(36.0)
    assert bound_jct_s(JobSet(jobs=tuple(sharing)), SMALL, jobs_per_gpu=1) == pytest.approx(36.0)


def test_links_count() -> None:
    """Four jobs that do little but send: the last one waits for the bytes of all."""
    jobs = JobSet(jobs=tuple(some_job(f"{i}", 2, size_bytes=1e11, memory_bytes=0.0) for i in range(4)))
    assert bound_jct_s(jobs, SMALL) == pytest.approx(400 * 2.5, rel=0.05)
