"""Jobs that leave their GPUs for others: the engine against its naive twin, and what holds of every run."""

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
from hocket.cluster.engine.policies.srsf_requeue import MOST_PREEMPTIONS
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.state import make_state
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator import clock as clocks
from hocket.cluster.simulator.outages import Outages
from hocket.cluster.simulator.simulate import ClusterRun, TimelineWindow, _make_log, simulate
from tests.naive import cluster as naive
from tests.property.test_cluster import (
    PLACEMENTS,
    cluster_of,
    drawn_scheduling,
    job_set,
    with_types,
    with_users,
)
from tests.property.test_cluster_outages import assert_as_twin, drawn_outages
from tests.strategies import examples


def drawn(
    seed: int, placement: str, *, ties: bool, fails: bool = False
) -> tuple[JobSet, Cluster, Scheduling, Outages | None]:
    """A few jobs, some of them long, some that can be preempted; half of the time GPUs are not shared."""
    rng = random.Random(seed)
    cluster = cluster_of(rng, ties=ties)
    jobs, cluster = with_types(rng, job_set(rng, cluster.num_gpus, ties=ties), cluster, ties=ties)
    scheduling = drawn_scheduling(rng, placement, "srsf-requeue", seed)
    jobs, scheduling = with_users(seed, jobs, scheduling)
    scheduling = dataclasses.replace(
        scheduling,
        checkpoint_s=rng.choice([None, 0.0, 0.1, 0.3]),
        jobs_per_gpu=1 if rng.random() < 0.5 else scheduling.jobs_per_gpu,
    )
    costs = [None, 0.0, 0.0, 0.1 if ties else rng.uniform(0.0, 0.3)]

    def saving(job: Job) -> Job:
        job = msgspec.structs.replace(job, checkpoint_s=rng.choice(costs))
        if rng.random() < 0.6:
            return job
        return msgspec.structs.replace(job, iterations=8 * job.iterations, arrival_s=job.arrival_s / 4)

    outages = drawn_outages(rng, cluster.num_servers, ties=ties) if fails else None
    return JobSet(jobs=tuple(saving(job) for job in jobs.jobs)), cluster, scheduling, outages


def compared(
    seed: int, placement: str, *, ties: bool, record: bool = False, fails: bool = False
) -> ClusterRun:
    """Simulate one random case and its twin; assert that they agree on every job."""
    jobs, cluster, scheduling, outages = drawn(seed, placement, ties=ties, fails=fails)
    run = simulate(jobs, cluster, scheduling, TimelineWindow() if record else None, outages)
    assert run.preemptions is not None
    simulation = naive.simulate(jobs, cluster, scheduling, outages)
    if simulation.meets_unevenly:
        return run
    for i, twin in enumerate(simulation.runs):
        assert run.preemptions.times[i] == twin.preemptions
        assert_as_twin(run, i, twin, cluster)
    parts = run.queueing_s + run.gpu_wait_s + run.computing_s + run.network_wait_s + run.transferring_s
    assert parts + run.preemptions.lost_s == pytest.approx(run.finish_s - run.arrival_s, abs=1e-8)
    return run


@examples(200)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    ties=st.booleans(),
    record=st.booleans(),
    fails=st.booleans(),
)
def test_engine_agrees_with_its_twin_on_jobs_that_are_preempted(
    seed: int, placement: str, ties: bool, record: bool, fails: bool
) -> None:
    run = compared(seed, placement, ties=ties, record=record, fails=fails)
    assert run.preemptions is not None
    event(f"preempted {min(3, int(run.preemptions.times.max()))} times")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 300), marks=pytest.mark.long)])
def test_engine_agrees_with_its_twin_on_many_clusters_that_preempt(seeds: range) -> None:
    times = 0
    for seed in seeds:
        run = compared(seed, PLACEMENTS[seed % len(PLACEMENTS)], ties=seed % 2 == 0, fails=seed % 5 == 0)
        assert run.preemptions is not None
        times += int(run.preemptions.times.sum())
    assert times > len(seeds) / 10, "hardly anybody was preempted"


@examples(40)
@given(seed=st.integers(0, 2**32), placement=st.sampled_from(PLACEMENTS), ties=st.booleans())
def test_everything_is_conserved_while_jobs_are_preempted(seed: int, placement: str, ties: bool) -> None:
    jobs, cluster, scheduling, _ = drawn(seed, placement, ties=ties)
    state, rules, _ = make_state(jobs, cluster, scheduling)
    clock = clocks.make_clock(state)
    log = _make_log(None, 1.0, len(jobs.jobs))
    over = False
    while not over:
        done = state.jobs["iterations"] - state.jobs["remaining"]
        over = clocks.run(state, rules, clock, log, 1)
        validate(state, rules, int(clock.hands[0]["now"]))
        assert (state.jobs["iterations"] - state.jobs["remaining"] >= done).all(), "an iteration was lost"
    may_not = [job.checkpoint_s is None and scheduling.checkpoint_s is None for job in jobs.jobs]
    assert (state.jobs["remaining"] == 0).all()
    assert (state.jobs["preemptions"] <= MOST_PREEMPTIONS).all()
    assert (state.jobs["preemptions"][may_not] == 0).all()


@examples(20)
@given(seed=st.integers(0, 2**32))
def test_recording_changes_nothing_while_jobs_are_preempted(seed: int) -> None:
    """A recorded run passes every iteration one by one, others pass many at once: to the tick the same."""
    jobs, cluster, scheduling, outages = drawn(seed, "lwf-1", ties=False)
    runs = [simulate(jobs, cluster, scheduling, record, outages) for record in (None, TimelineWindow())]
    for name in ("finish_s", "queueing_s", "network_wait_s", "transferring_s"):
        assert np.array_equal(getattr(runs[0], name), getattr(runs[1], name))


@examples(20)
@given(seed=st.integers(0, 2**32), placement=st.sampled_from(PLACEMENTS))
def test_without_a_checkpoint_nobody_is_preempted(seed: int, placement: str) -> None:
    jobs, cluster, scheduling, _ = drawn(seed, placement, ties=True)
    jobs = JobSet(jobs=tuple(msgspec.structs.replace(job, checkpoint_s=None) for job in jobs.jobs))
    scheduling = dataclasses.replace(scheduling, checkpoint_s=None)
    runs = [
        simulate(jobs, cluster, dataclasses.replace(scheduling, policy=policy))
        for policy in ("srsf-requeue", "srsf-1")
    ]
    assert runs[0].gpus == runs[1].gpus
    assert np.array_equal(runs[0].finish_s, runs[1].finish_s)
