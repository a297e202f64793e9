"""Servers that go down: the engine against its naive twin, and what is conserved whatever fails."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.conservation import validate
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.state import make_state
from hocket.cluster.jobs import JobSet
from hocket.cluster.simulator import clock as clocks
from hocket.cluster.simulator.outage_feed import OutageFeed
from hocket.cluster.simulator.outages import Maintenance, Outages
from hocket.cluster.simulator.simulate import ClusterRun, TimelineWindow, _make_log, simulate
from tests.naive import cluster as naive
from tests.naive.cluster_state import Run
from tests.property.test_cluster import (
    PLACEMENTS,
    POLICIES,
    cluster_of,
    drawn_scheduling,
    job_set,
    with_numbers,
    with_types,
    with_users,
)
from tests.strategies import examples


def drawn_outages(rng: random.Random, num_servers: int, *, ties: bool) -> Outages:
    """A few times in which servers are down, soon enough that jobs are there; with ``ties`` they coincide."""

    def seconds(most: float) -> float:
        return rng.randint(1, int(4 * most)) / 4 if ties else rng.uniform(0.01, most)

    windows = []
    for _ in range(rng.randint(1, 6)):
        from_s = seconds(8.0)
        windows.append(Maintenance(rng.randrange(num_servers), from_s, from_s + seconds(3.0)))
    every_s = rng.choice([None, 0.01, 0.4, 1.0, 2.5])
    return Outages(maintenance=tuple(windows), checkpoint_every_s=every_s)


def drawn(
    seed: int, placement: str, policy: str, *, ties: bool
) -> tuple[JobSet, Cluster, Scheduling, Outages]:
    rng = random.Random(seed)
    cluster = cluster_of(rng, ties=ties)
    jobs, cluster = with_types(rng, job_set(rng, cluster.num_gpus, ties=ties), cluster, ties=ties)
    jobs, scheduling = with_users(seed, jobs, drawn_scheduling(rng, placement, policy, seed))
    outages = drawn_outages(rng, cluster.num_servers, ties=ties)
    return with_numbers(seed, jobs), cluster, scheduling, outages


def assert_as_twin(run: ClusterRun, i: int, twin: Run, cluster: Cluster) -> None:
    """Assert that job ``i`` had the GPUs and the times of its twin, interruptions or not."""
    assert twin.first_start is not None
    assert twin.finish is not None
    assert run.gpus[i] == tuple(divmod(g, cluster.gpus_per_server) for g in twin.gpus)
    for found, expected in (
        (run.start_s, twin.first_start),
        (run.finish_s, twin.finish),
        (run.queueing_s, twin.queueing),
        (run.computing_s, twin.computed),
        (run.transferring_s, twin.transferring),
        (run.network_wait_s, twin.network_wait),
    ):
        assert found[i] == pytest.approx(float(expected), abs=1e-8)


def compared(seed: int, placement: str, policy: str, *, ties: bool, record: bool = False) -> ClusterRun:
    """Simulate one random case and its twin; assert that they agree on every job.

    Not where a transfer that is not of whole ticks meets something else on paper: at seed 100000001 under
    ``earliest`` and ``ada-srsf``, with ties, one that began at 607/60 s ends at 103/10 s, when another job is
    ready. Counted in ticks it ends one later.
    """
    jobs, cluster, scheduling, outages = drawn(seed, placement, policy, ties=ties)
    run = simulate(jobs, cluster, scheduling, TimelineWindow() if record else None, outages)
    assert run.toll is not None
    interruptions, lost_s = run.toll.interruptions, run.toll.lost_s
    simulation = naive.simulate(jobs, cluster, scheduling, outages)
    if simulation.meets_unevenly:
        return run
    for i, twin in enumerate(simulation.runs):
        assert_as_twin(run, i, twin, cluster)
        assert interruptions[i] == twin.interruptions
        assert run.gpu_wait_s[i] >= jobs.jobs[i].startup_s - 1e-8
    parts = run.queueing_s + run.gpu_wait_s + run.computing_s + run.network_wait_s + run.transferring_s
    assert parts + lost_s == pytest.approx(run.finish_s - run.arrival_s, abs=1e-8)
    assert (lost_s >= -1e-8).all()
    assert (lost_s[interruptions == 0] <= 1e-8).all()
    return run


@example(seed=100000001, placement="earliest", policy="ada-srsf", ties=True, record=False)  # between ticks
@examples(150)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    policy=st.sampled_from(POLICIES),
    ties=st.booleans(),
    record=st.booleans(),
)
def test_engine_agrees_with_its_twin_on_servers_that_go_down(
    seed: int, placement: str, policy: str, ties: bool, record: bool
) -> None:
    run = compared(seed, placement, policy, ties=ties, record=record)
    assert run.toll is not None
    event(f"interrupted {min(3, int(run.toll.interruptions.max()))} times")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.long)])
def test_engine_agrees_with_its_twin_on_many_clusters_that_fail(policy: str, seeds: range) -> None:
    for seed in seeds:
        compared(seed, PLACEMENTS[seed % len(PLACEMENTS)], policy, ties=seed % 2 == 0)


@examples(40)
@given(
    seed=st.integers(0, 2**32),
    placement=st.sampled_from(PLACEMENTS),
    policy=st.sampled_from(POLICIES),
    ties=st.booleans(),
)
def test_everything_is_conserved_while_servers_fail(
    seed: int, placement: str, policy: str, ties: bool
) -> None:
    jobs, cluster, scheduling, windows = drawn(seed, placement, policy, ties=ties)
    outages = Outages(mtbf_s=20.0, repair_s=1.0, maintenance=windows.maintenance, checkpoint_every_s=0.4)
    state, rules, tick_s = make_state(jobs, cluster, scheduling, 1e-9)
    clock, feed = clocks.make_clock(state), OutageFeed(outages, jobs, state, tick_s)
    feed.begin(clock.outages)
    clock = clock._replace(outages=clock.outages._replace(events=feed.more()))
    log = _make_log(None, 1.0, len(jobs.jobs))
    over = False
    while not over:
        assert clock.hands[0]["outage"] < len(clock.outages.events) - 1, "more than 4,096 events in seconds"
        over = clocks.run(state, rules, clock, log, 1)
        validate(state, rules, int(clock.hands[0]["now"]))
        for server in np.flatnonzero(clock.outages.down):
            here = slice(server * cluster.gpus_per_server, (server + 1) * cluster.gpus_per_server)
            assert (state.gpus["resident"][here] < 0).all(), f"server {server} is down and has a job"
    assert (state.jobs["remaining"] == 0).all()


@example(seed=169342840, policy="srsf-1")  # the first iteration of a stretch, after waiting, is lost
@examples(20)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(POLICIES))
def test_recording_changes_nothing_while_servers_fail(seed: int, policy: str) -> None:
    """A recorded run passes every iteration one by one, others pass many at once: to the tick the same."""
    jobs, cluster, scheduling, windows = drawn(seed, "lwf-1", policy, ties=False)
    outages = Outages(mtbf_s=15.0, repair_s=1.0, maintenance=windows.maintenance, seed=seed % 2**16)
    runs = [simulate(jobs, cluster, scheduling, record, outages) for record in (None, TimelineWindow())]
    for name in ("finish_s", "queueing_s", "network_wait_s", "transferring_s"):
        assert np.array_equal(getattr(runs[0], name), getattr(runs[1], name))
    assert runs[0].toll is not None
    assert runs[1].toll is not None
    assert np.array_equal(runs[0].toll.lost_s, runs[1].toll.lost_s)


@examples(20)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(POLICIES))
def test_outages_after_the_last_end_change_nothing(seed: int, policy: str) -> None:
    jobs, cluster, scheduling, _ = drawn(seed, "lwf-1", policy, ties=True)
    never = Outages(mtbf_s=1e9, repair_s=1.0, maintenance=(Maintenance(0, 1e6, 2e6),))
    runs = [simulate(jobs, cluster, scheduling, None, outages) for outages in (None, never)]
    assert runs[0].gpus == runs[1].gpus
    assert runs[0].finish_s == pytest.approx(runs[1].finish_s, abs=1e-8)
    assert runs[1].toll is not None
    assert not runs[1].toll.interruptions.any()
