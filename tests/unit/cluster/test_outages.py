"""Servers that go down in a simulation: cases worked out by hand, the streams of failures, and refusals."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.outages import Maintenance, OutageEvent, Outages
from hocket.cluster.simulator.simulate import ClusterRun, simulate
from hocket.errors import HocketError
from tests.unit.cluster.test_engine import B, job


def run(*jobs: Job, outages: Outages, servers: int = 2, policy: str = "srsf-1") -> ClusterRun:
    cluster = Cluster(
        num_servers=servers,
        gpus_per_server=1,
        startup_s=0.0,
        per_byte_s=B,
        contention_per_byte_s=0.5 * B,
    )
    return simulate(JobSet(jobs=jobs), cluster, Scheduling(placement="ff", policy=policy), None, outages)


def down(*windows: tuple[int, float, float], every_s: float | None = None) -> Outages:
    return Outages(maintenance=tuple(Maintenance(*w) for w in windows), checkpoint_every_s=every_s)


@pytest.mark.parametrize(
    ("every_s", "finish_s", "lost_s"),
    [
        (None, 40.0, 10.0),  # ten iterations of 3 s anew on the other server, at once
        (6.0, 34.0, 4.0),  # three were complete, and every second one is kept
        (7.0, 34.0, 4.0),  # 7 s hold two
        (1.0, 31.0, 1.0),  # each is kept, but for a third of the fourth
    ],
)
def test_a_job_goes_on_elsewhere_with_what_it_has_kept(
    every_s: float | None, finish_s: float, lost_s: float
) -> None:
    ran = run(job("a", iterations=10), outages=down((0, 10.0, 20.0), every_s=every_s))
    assert ran.finish_s == pytest.approx([finish_s])
    assert ran.gpus == (((1, 0),),)
    assert (ran.start_s[0], ran.queueing_s[0], ran.computing_s[0]) == pytest.approx((0.0, 0.0, 30.0))
    assert ran.toll is not None
    assert (ran.toll.went_down, ran.toll.interruptions.tolist()) == (1, [1])
    assert ran.toll.lost_s == pytest.approx([lost_s])


def test_a_job_on_several_servers_waits_for_the_one_that_is_down() -> None:
    # Iterations of 3 s and a transfer of 1 s: two are complete at 10 s, and 2 s of the third are lost.
    ran = run(job("a", 2, iterations=10), outages=down((1, 10.0, 20.0), every_s=1.0))
    assert ran.finish_s == pytest.approx([52.0])
    assert ran.queueing_s == pytest.approx([10.0])
    assert ran.transferring_s == pytest.approx([10.0])
    assert ran.toll is not None
    assert ran.toll.lost_s == pytest.approx([2.0])


def test_who_ends_as_a_server_goes_down_has_ended_and_nobody_is_placed_before_it_is_back() -> None:
    ends, late = job("ends", iterations=2), job("late", iterations=1, arrival_s=7.0)
    ran = run(ends, late, servers=1, outages=down((0, 6.0, 20.0), (0, 10.0, 25.0)))
    assert ran.finish_s == pytest.approx([6.0, 28.0])
    assert ran.toll is not None
    assert ran.toll.interruptions.tolist() == [0, 0]
    assert ran.toll.went_down == 1, "the second time it was down already"


def test_a_job_that_was_launching_launches_again() -> None:
    ran = run(job("a", iterations=1, startup_s=5.0), servers=1, outages=down((0, 4.0, 6.0)))
    assert ran.finish_s == pytest.approx([6.0 + 5.0 + 3.0])
    assert ran.gpu_wait_s == pytest.approx([5.0])
    assert ran.toll is not None
    assert ran.toll.lost_s == pytest.approx([4.0])


def test_each_server_has_its_own_stream_of_failures_by_the_seed() -> None:
    outages = Outages(mtbf_s=1000.0, repair_s=10.0, seed=3)

    def of(server: int, events: list[OutageEvent]) -> list[OutageEvent]:
        return [event for event in events if event.server == server]

    few, many = (list(islice(outages.events(servers), 400 * servers)) for servers in (2, 8))
    assert few == sorted(few)
    assert many == sorted(many)
    for server in range(2):
        both = list(zip(of(server, few), of(server, many), strict=False))
        assert len(both) > 100
        assert all(one == other for one, other in both)
    events = of(0, list(islice(outages.events(1), 8000)))
    assert [event.begins for event in events] == [True, False] * 4000
    lengths = np.diff([0.0, *(event.at_s for event in events)])
    # The mean of 4,000 draws of an exponential distribution is within 5% in all but one of 600 cases.
    assert lengths[::2].mean() == pytest.approx(1000.0, rel=0.05)
    assert lengths[1::2].mean() == pytest.approx(10.0, rel=0.05)
    assert next(Outages(mtbf_s=1000.0, repair_s=10.0, seed=4).events(1)) != events[0]


def test_runs_that_would_not_end_say_why() -> None:
    with pytest.raises(HocketError, match="job 'a' was interrupted more than 10000 times and has kept 0 of"):
        run(job("a", iterations=100), outages=Outages(mtbf_s=1.0, repair_s=0.1, checkpoint_every_s=None))
    with pytest.raises(HocketError, match=r"job 'wide' is not over after \d+ days: too few of the servers"):
        run(job("wide", 6, iterations=100), servers=6, outages=Outages(mtbf_s=1.0, repair_s=1e5))


@pytest.mark.parametrize(
    ("outages", "message"),
    [
        (Outages(mtbf_s=0.0), "0.0 s between failures: give seconds above 0"),
        (Outages(mtbf_s=1.0), "0.0 s of repair: give seconds above 0"),
        (Outages(checkpoint_every_s=-1.0), "-1.0 s between checkpoints"),
        (down((2, 1.0, 2.0)), "maintenance of server 2: the cluster has 2 servers, 0 to 1"),
        (down((1, 2.0, 2.0)), "maintenance from 2 s to 2 s: it begins at 0 or later, and ends after that"),
    ],
)
def test_what_makes_no_sense_is_refused(outages: Outages, message: str) -> None:
    with pytest.raises(HocketError) as refused:
        run(job("a"), outages=outages)
    assert message in str(refused.value)
