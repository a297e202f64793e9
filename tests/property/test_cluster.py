"""The cluster engine against its naive twin, job by job, and what holds of every run."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.conservation import validate
from hocket.cluster.engine.policies.named_policies import POLICY_NAMES
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.state import make_state
from hocket.cluster.gpu_type import GpuType
from hocket.cluster.jobs import Batch, Job, JobSet
from hocket.cluster.simulator import clock as clocks
from hocket.cluster.simulator.simulate import ClusterRun, TimelineWindow, _make_log, simulate
from tests.naive import cluster as naive
from tests.strategies import examples

PLACEMENTS = ("rand", "ff", "ls", "lwf-1", "lwf-2", "earliest", "blocks")
POLICIES = ("srsf-1", "srsf-2", "srsf-3", *(name for name in POLICY_NAMES if name != "srsf-N"))


def job_set(rng: random.Random, num_gpus: int, *, ties: bool, overlapping: float = 0.5) -> JobSet:
    """A few jobs; with ``ties`` everything is a multiple of few numbers, so that events coincide."""

    def seconds(most: int) -> float:
        return rng.randint(1, most) / 10 if ties else rng.uniform(0.05, most / 10)

    def batches(forward_s: float, backward_s: float, size_bytes: float) -> tuple[Batch, ...]:
        count = rng.randint(1, 4)
        end_s = forward_s + backward_s
        sizes = [size_bytes / 4 if ties else size_bytes * rng.uniform(0.0, 0.25) for _ in range(count - 1)]
        found = []
        for size in [*sizes, size_bytes - sum(sizes)]:
            ready_s = round(rng.randint(1, 4) / 4 * end_s if ties else rng.uniform(1e-3, end_s), 6)
            due_s = rng.choice([0.0, rng.randint(0, 3) / 4 * end_s, rng.uniform(0.0, 0.99) * end_s])
            due_s = min(ready_s, round(due_s, 6))
            found.append(
                Batch(size_bytes=size, ready_s=ready_s if ties else min(ready_s, end_s), due_s=due_s)
            )
        return tuple(found)

    def job(i: int) -> Job:
        forward_s, backward_s = 0.0 if ties and rng.random() < 0.1 else seconds(3), seconds(4)
        size_bytes = rng.choice([0, 1, 2, 3, 5, 10]) * 1e8 if ties else rng.uniform(1e7, 1e9)
        return Job(
            id=f"job{i}",
            model="toy",
            gpus=rng.choice([1, 1, 2, 2, 3, 4, 6]) if num_gpus >= 6 else rng.randint(1, num_gpus),
            iterations=rng.randint(1, 8),
            arrival_s=rng.randint(0, 12) / 4 if ties else rng.uniform(0, 3),
            forward_s=forward_s,
            backward_s=backward_s,
            size_bytes=size_bytes,
            memory_bytes=rng.choice([0.0, 3e9, 5e9, 8e9, 16e9]),
            batches=batches(forward_s, backward_s, size_bytes) if rng.random() < overlapping else (),
            startup_s=seconds(8) if rng.random() < 0.3 else 0.0,
        )

    return JobSet(jobs=tuple(job(i) for i in range(rng.randint(1, 7))))


def cluster_of(rng: random.Random, *, ties: bool) -> Cluster:
    servers = rng.randint(1, 5)
    sharing: dict[str, Any] = {}
    if rng.random() < 0.3:
        sharing = {
            "sharing": "max-min",
            "racks": rng.randint(1, servers),
            "oversubscription": rng.choice([1.0, 2.0, 4.0]),
        }
    return Cluster(
        num_servers=servers,
        gpus_per_server=rng.randint(1, 3),
        startup_s=rng.choice([0.0, 0.05, 0.1]) if ties else 0.0123,
        per_byte_s=1e-9,
        contention_per_byte_s=rng.choice([None, 0.0, 5e-10, 1e-9]),
        **sharing,
    )


def with_types(rng: random.Random, jobs: JobSet, cluster: Cluster, *, ties: bool) -> tuple[JobSet, Cluster]:
    """Half of the time GPUs of several types, and jobs that run on some of them, each at a speed of its own.

    With ``ties`` speeds are powers of two: times stay multiples of few numbers.
    """
    if rng.random() < 0.5:
        return jobs, cluster
    memory = {name: rng.choice([None, 8e9, 32e9]) for name in "abc"}
    types, left = [], cluster.num_gpus
    while left:
        name, num = rng.choice("abc"), rng.randint(1, left)
        types.append(GpuType(name=name, num_gpus=num, memory_bytes=memory[name]))
        left -= num
    typed = dataclasses.replace(cluster, gpu_types=tuple(types))

    def job_on(job: Job) -> Job:
        names = rng.sample("abc", rng.randint(0, 3))
        speeds = {name: rng.choice([0.5, 1.0, 1.0, 2.0]) if ties else rng.uniform(0.3, 3.0) for name in names}
        largest = max(
            (each for each in typed.types if not speeds or each.name in speeds),
            key=lambda each: (each.num_gpus, each.memory_bytes),
            default=typed.types[0],
        )
        speeds = speeds if largest.name in speeds or not speeds else {largest.name: 0.5}
        return msgspec.structs.replace(
            job,
            speeds=speeds,
            gpus=min(job.gpus, largest.num_gpus),
            memory_bytes=min(job.memory_bytes, largest.memory_bytes),
        )

    return JobSet(jobs=tuple(job_on(job) for job in jobs.jobs)), typed


def sending_nothing(job: Job) -> Job:
    batches = tuple(msgspec.structs.replace(batch, size_bytes=0.0) for batch in job.batches)
    return msgspec.structs.replace(job, size_bytes=0.0, batches=batches)


def with_users(seed: int, jobs: JobSet, scheduling: Scheduling) -> tuple[JobSet, Scheduling]:
    """The jobs with users and priorities, half of the time each, and quotas and shares of these users."""
    rng = random.Random(f"users of {seed}")
    users = ["", "alice", "bob"] if rng.random() < 0.5 else [""]
    priorities = [-1, 0, 0, 2] if rng.random() < 0.5 else [0]
    drawn = tuple(
        msgspec.structs.replace(job, user=rng.choice(users), priority=rng.choice(priorities))
        for job in jobs.jobs
    )
    quotas: dict[str, int] = {}
    for user in (*users, "*"):
        widest = max((job.gpus for job in drawn if user in (job.user, "*")), default=1)
        if user and rng.random() < 0.4:
            quotas[user] = widest + rng.choice([0, 0, 1, 3])
    fair = scheduling.policy == "fair-share" and rng.random() < 0.6
    shares = {user: rng.randint(1, 3) for user in ("alice", "bob", "*") if fair and rng.random() < 0.7}
    half_life_s = rng.choice([None, 0.25, 1.0, 3.0]) if scheduling.policy == "fair-share" else None
    chosen = dataclasses.replace(scheduling, quotas=quotas, shares=shares, half_life_s=half_life_s)
    return JobSet(jobs=drawn), chosen


def with_numbers(seed: int, jobs: JobSet) -> JobSet:
    """The jobs, half of the time some of them with a range of GPUs, up to more than the cluster has."""
    rng = random.Random(f"numbers of {seed}")
    if rng.random() < 0.5:
        return jobs

    def job_with(job: Job) -> Job:
        if rng.random() < 0.3:
            return job
        gpus = job.gpus + rng.choice([0, 0, 1, 2, 4])
        return msgspec.structs.replace(job, gpus=gpus, gpus_min=rng.randint(1, job.gpus))

    return JobSet(jobs=tuple(job_with(job) for job in jobs.jobs))


def drawn_scheduling(rng: random.Random, placement: str, policy: str, seed: int) -> Scheduling:
    """Drawn numbers beside these names: half of the time jobs may hold GPUs, or share them up to a limit."""
    return Scheduling(
        placement=placement,
        policy=policy,
        seed=seed,
        chunk_bytes=rng.choice([3e7, 1e8, 2.5e8]),
        starvation_s=rng.choice([None, None, 0.0, 0.5, 2.0, 5.0]),
        jobs_per_gpu=rng.choice([None, None, 1, 2]),
        wait_for_faster=random.Random(f"faster of {seed}").random() < 0.5,
    )


def compared(
    seed: int, placement: str, policy: str, *, ties: bool, record: bool = False, instant: bool = False
) -> ClusterRun:
    """Simulate one random case and its twin; assert that they agree on every job, where that is promised.

    ``instant``: most transfers take no time.
    """
    rng = random.Random(seed)
    cluster = cluster_of(rng, ties=ties)
    jobs = job_set(rng, cluster.num_gpus, ties=ties)
    if instant:
        cluster = dataclasses.replace(cluster, startup_s=0.0)
        jobs = JobSet(jobs=tuple(job if rng.random() < 0.3 else sending_nothing(job) for job in jobs.jobs))
    jobs, scheduling = with_users(seed, jobs, drawn_scheduling(rng, placement, policy, seed))
    jobs, cluster = with_types(rng, jobs, cluster, ties=ties)
    jobs = with_numbers(seed, jobs)
    run = simulate(jobs, cluster, scheduling, TimelineWindow() if record else None)
    simulation = naive.simulate(jobs, cluster, scheduling)
    if simulation.meets_unevenly:
        return run
    for i, twin in enumerate(simulation.runs):
        gpus = tuple(divmod(g, cluster.gpus_per_server) for g in twin.gpus)
        assert run.gpus[i] == gpus
        assert twin.start is not None
        assert twin.finish is not None
        assert run.start_s[i] == pytest.approx(float(twin.start), abs=1e-9)
        assert run.finish_s[i] == pytest.approx(float(twin.finish), abs=1e-9)
        assert run.transferring_s[i] == pytest.approx(float(twin.transferring), abs=1e-9)
        assert run.network_wait_s[i] == pytest.approx(float(twin.network_wait), abs=1e-9)
        assert run.gpu_wait_s[i] >= jobs.jobs[i].startup_s - 1e-9
    parts = run.queueing_s + run.gpu_wait_s + run.computing_s + run.network_wait_s + run.transferring_s
    assert parts == pytest.approx(run.finish_s - run.arrival_s, abs=1e-9)
    return run


@examples(250)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    policy=st.sampled_from(POLICIES),
    ties=st.booleans(),
    record=st.booleans(),
)
def test_engine_agrees_with_its_twin(
    seed: int, placement: str, policy: str, ties: bool, record: bool
) -> None:
    run = compared(seed, placement, policy, ties=ties, record=record)
    event(policy)
    if any(run.gpu_wait_s > 1e-9):
        event("GPUs are waited for")
    if (run.transferring_s > 0).any():
        event("transfers")
    if (run.network_wait_s > 1e-9).any():
        event("transfers wait")


@example(seed=687, placement="lwf-2", policy="srpt", record=False)  # preempted, and on at the same instant
@examples(60)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    policy=st.sampled_from(POLICIES),
    record=st.booleans(),
)
def test_engine_agrees_with_its_twin_on_transfers_that_take_no_time(
    seed: int, placement: str, policy: str, record: bool
) -> None:
    """They end at an instant of their own, at the time at which GPUs have begun the next task already."""
    compared(seed, placement, policy, ties=True, record=record, instant=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seeds", [range(72), pytest.param(range(72, 360), marks=pytest.mark.long)])
def test_engine_agrees_with_its_twin_on_many_clusters(policy: str, seeds: range) -> None:
    for seed in seeds:
        instant = seed % 8 == 0
        compared(seed, PLACEMENTS[seed % len(PLACEMENTS)], policy, ties=seed % 2 == 0, instant=instant)


@examples(40)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    policy=st.sampled_from(POLICIES),
    ties=st.booleans(),
)
def test_everything_is_conserved_after_every_event(
    seed: int, placement: str, policy: str, ties: bool
) -> None:
    rng = random.Random(seed)
    cluster = cluster_of(rng, ties=ties)
    jobs = job_set(rng, cluster.num_gpus, ties=ties)
    jobs, scheduling = with_users(seed, jobs, drawn_scheduling(rng, placement, policy, seed))
    jobs, cluster = with_types(rng, jobs, cluster, ties=ties)
    jobs = with_numbers(seed, jobs)
    state, rules, _ = make_state(jobs, cluster, scheduling)
    clock = clocks.make_clock(state)
    log = _make_log(None, 1.0, len(jobs.jobs))
    over = False
    while not over:
        over = clocks.run(state, rules, clock, log, 1)
        validate(state, rules, int(clock.hands[0]["now"]))
    assert (state.jobs["remaining"] == 0).all()


@examples(30)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(POLICIES))
def test_recording_changes_nothing(seed: int, policy: str) -> None:
    """A recorded run passes every iteration one by one, others pass many at once: to the tick the same."""
    rng = random.Random(seed)
    cluster = cluster_of(rng, ties=False)
    jobs, cluster = with_types(rng, job_set(rng, cluster.num_gpus, ties=False), cluster, ties=False)
    jobs = with_numbers(seed, jobs)
    runs = [
        simulate(jobs, cluster, Scheduling(placement="lwf-1", policy=policy), record=record)
        for record in (None, TimelineWindow())
    ]
    assert np.array_equal(runs[0].finish_s, runs[1].finish_s)
    assert np.array_equal(runs[0].network_wait_s, runs[1].network_wait_s)
    timeline = runs[1].timeline
    assert timeline is not None
    busy = sum(span.end_s - span.start_s for span in timeline.spans if span.kind != "reduce")
    assert busy == pytest.approx(runs[1].busy_gpu_s)
    ends: dict[int, float] = {}
    for span in timeline.spans:
        assert span.start_s >= ends.get(span.lane, 0.0) - 1e-12, "two spans overlap on a lane"
        ends[span.lane] = span.end_s


@examples(20)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(POLICIES))
def test_same_seed_same_run(seed: int, policy: str) -> None:
    rng = random.Random(seed)
    cluster = cluster_of(rng, ties=True)
    jobs = job_set(rng, cluster.num_gpus, ties=True)
    runs = [simulate(jobs, cluster, Scheduling(placement="rand", policy=policy, seed=seed)) for _ in range(2)]
    assert np.array_equal(runs[0].finish_s, runs[1].finish_s)
    assert runs[0].gpus == runs[1].gpus
