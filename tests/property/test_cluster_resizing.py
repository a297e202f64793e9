"""Jobs that shrink and grow while they run: the engine against its naive twin, and what holds of runs."""

from __future__ import annotations

import dataclasses
import random

import msgspec
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.conservation import validate
from hocket.cluster.engine.resizing import MOST_SHRUNK
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.state import make_state
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator import clock as clocks
from hocket.cluster.simulator.outages import Outages
from hocket.cluster.simulator.simulate import ClusterRun, TimelineWindow, _make_log, simulate
from tests.naive import cluster as naive
from tests.property.test_cluster import (
    PLACEMENTS,
    POLICIES,
    cluster_of,
    drawn_scheduling,
    job_set,
    with_types,
    with_users,
)
from tests.property.test_cluster_outages import assert_as_twin, drawn_outages
from tests.strategies import examples

ANY_POLICY = (*POLICIES, "srsf-requeue")


def drawn(
    seed: int, placement: str, policy: str, *, ties: bool, fails: bool = False
) -> tuple[JobSet, Cluster, Scheduling, Outages | None]:
    """A few jobs, most of them with a range of GPUs, some long; half of the time GPUs are not shared."""
    rng = random.Random(seed)
    cluster = cluster_of(rng, ties=ties)
    jobs, cluster = with_types(rng, job_set(rng, cluster.num_gpus, ties=ties), cluster, ties=ties)
    scheduling = drawn_scheduling(rng, placement, policy, seed)
    jobs, scheduling = with_users(seed, jobs, scheduling)
    scheduling = dataclasses.replace(
        scheduling,
        resize=True,
        checkpoint_s=rng.choice([0.0, 0.0, 0.1, 0.3]),
        jobs_per_gpu=1 if rng.random() < 0.6 else scheduling.jobs_per_gpu,
    )
    costs = [None, None, 0.0, 0.1 if ties else rng.uniform(0.0, 0.3)]

    def ranging(job: Job) -> Job:
        job = msgspec.structs.replace(job, checkpoint_s=rng.choice(costs))
        if rng.random() < 0.7:
            more = rng.choice([0, 1, 2, 4])
            job = msgspec.structs.replace(job, gpus=job.gpus + more, gpus_min=rng.randint(1, job.gpus))
        if rng.random() < 0.5:
            return job
        return msgspec.structs.replace(job, iterations=8 * job.iterations, arrival_s=job.arrival_s / 4)

    outages = drawn_outages(rng, cluster.num_servers, ties=ties) if fails else None
    return JobSet(jobs=tuple(ranging(job) for job in jobs.jobs)), cluster, scheduling, outages


def compared(
    seed: int, placement: str, policy: str, *, ties: bool, record: bool = False, fails: bool = False
) -> ClusterRun:
    """Simulate one random case and its twin; assert that they agree on every job."""
    jobs, cluster, scheduling, outages = drawn(seed, placement, policy, ties=ties, fails=fails)
    run = simulate(jobs, cluster, scheduling, TimelineWindow() if record else None, outages)
    toll = run.preemptions
    assert toll is not None
    simulation = naive.simulate(jobs, cluster, scheduling, outages)
    if simulation.meets_unevenly:
        return run
    for i, twin in enumerate(simulation.runs):
        assert (toll.shrunk[i], toll.grown[i], toll.times[i]) == (twin.shrunk, twin.grown, twin.preemptions)
        assert_as_twin(run, i, twin, cluster)
    parts = run.queueing_s + run.gpu_wait_s + run.computing_s + run.network_wait_s + run.transferring_s
    assert parts + toll.lost_s == pytest.approx(run.finish_s - run.arrival_s, abs=1e-8)
    return run


@examples(150)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    policy=st.sampled_from(ANY_POLICY),
    ties=st.booleans(),
    record=st.booleans(),
    fails=st.booleans(),
)
def test_engine_agrees_with_its_twin_on_jobs_that_are_resized(
    seed: int, placement: str, policy: str, ties: bool, record: bool, fails: bool
) -> None:
    run = compared(seed, placement, policy, ties=ties, record=record, fails=fails)
    assert run.preemptions is not None
    event(f"shrunk {min(2, int(run.preemptions.shrunk.max()))} times")
    event(f"grown {min(2, int(run.preemptions.grown.max()))} times")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", [range(75), pytest.param(range(75, 300), marks=pytest.mark.long)])
def test_engine_agrees_with_its_twin_on_many_clusters_that_resize(seeds: range) -> None:
    shrunk = grown = 0
    for seed in seeds:
        placement, policy = PLACEMENTS[seed % len(PLACEMENTS)], ANY_POLICY[seed % len(ANY_POLICY)]
        run = compared(seed, placement, policy, ties=seed % 2 == 0, fails=seed % 5 == 0)
        assert run.preemptions is not None
        shrunk += int(run.preemptions.shrunk.sum())
        grown += int(run.preemptions.grown.sum())
    assert shrunk > len(seeds) / 10, "hardly anybody shrank"
    assert grown > len(seeds) / 10, "hardly anybody grew"


@examples(40)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    policy=st.sampled_from(ANY_POLICY),
    ties=st.booleans(),
)
def test_everything_is_conserved_while_jobs_are_resized(
    seed: int, placement: str, policy: str, ties: bool
) -> None:
    jobs, cluster, scheduling, _ = drawn(seed, placement, policy, ties=ties)
    state, rules, _ = make_state(jobs, cluster, scheduling)
    clock = clocks.make_clock(state)
    log = _make_log(None, 1.0, len(jobs.jobs))
    over = False
    while not over:
        before = state.jobs.copy()
        done = (before["iterations"] - before["remaining"]) * before["gpus"]
        over = clocks.run(state, rules, clock, log, 1)
        validate(state, rules, int(clock.hands[0]["now"]))
        after = (state.jobs["iterations"] - state.jobs["remaining"]) * state.jobs["gpus"]
        # With another number less than an iteration of these is rounded off.
        other = before["gpus"] != state.jobs["gpus"]
        assert (after >= done - other * (state.jobs["gpus"] - 1)).all(), "work was lost"
    assert (state.jobs["remaining"] == 0).all()
    assert (state.jobs["shrunk"] <= MOST_SHRUNK).all()
    assert (state.jobs["grown"] <= state.jobs["shrunk"] + MOST_SHRUNK).all()
    without = [job.gpus_min is None or job.gpus_min == job.gpus for job in jobs.jobs]
    assert (state.jobs["shrunk"][without] == 0).all()


@examples(20)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(ANY_POLICY))
def test_recording_changes_nothing_while_jobs_are_resized(seed: int, policy: str) -> None:
    """A recorded run passes every iteration one by one, others pass many at once: to the tick the same."""
    jobs, cluster, scheduling, outages = drawn(seed, "lwf-1", policy, ties=False)
    runs = [simulate(jobs, cluster, scheduling, record, outages) for record in (None, TimelineWindow())]
    for name in ("finish_s", "queueing_s", "network_wait_s", "transferring_s"):
        assert np.array_equal(getattr(runs[0], name), getattr(runs[1], name))


@examples(20)
@given(seed=st.integers(0, 2**32), placement=st.sampled_from(PLACEMENTS), policy=st.sampled_from(POLICIES))
def test_without_a_range_nobody_is_resized(seed: int, placement: str, policy: str) -> None:
    jobs, cluster, scheduling, _ = drawn(seed, placement, policy, ties=True)
    fixed = JobSet(
        jobs=tuple(msgspec.structs.replace(job, gpus=job.fewest_gpus, gpus_min=None) for job in jobs.jobs)
    )
    runs = [
        simulate(fixed, cluster, each)
        for each in (scheduling, dataclasses.replace(scheduling, resize=False, checkpoint_s=None))
    ]
    assert runs[0].gpus == runs[1].gpus
    assert np.array_equal(runs[0].finish_s, runs[1].finish_s)
