"""Jobs that shrink for others and grow where nobody waits: by hand, on servers of four GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.assumptions import assumptions
from hocket.cluster.engine.resizing import MOST_SHRUNK
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.results.run_statistics import cluster_row
from hocket.cluster.simulator.simulate import ClusterRun, simulate
from hocket.errors import HocketError

ONE = Cluster(num_servers=1, gpus_per_server=4)
PAIR = Cluster(num_servers=2, gpus_per_server=4)


def job(name: str, gpus: int, iterations: int, arrival_s: float = 0.0, **changes: Any) -> Job:
    """A job of iterations of a second."""
    fields: dict[str, Any] = {"id": name, "model": "m", "gpus": gpus, "iterations": iterations}
    fields |= {"forward_s": 0.25, "backward_s": 0.75, "size_bytes": 0.0, "memory_bytes": 16e9}
    return Job(**fields | {"arrival_s": arrival_s} | changes)


def run(*jobs: Job, cluster: Cluster = ONE, **changes: Any) -> ClusterRun:
    scheduling = Scheduling(**{"placement": "lwf-1", "policy": "srsf-1", "resize": True} | changes)
    found = simulate(JobSet(jobs=jobs), cluster, scheduling)
    assert found.preemptions is not None
    return found


def resizes(found: ClusterRun) -> list[tuple[int, int]]:
    assert found.preemptions is not None
    return list(zip(found.preemptions.shrunk.tolist(), found.preemptions.grown.tolist(), strict=True))


def test_a_job_gives_gpus_to_one_that_waits_and_takes_them_back() -> None:
    wide = job("wide", 4, 100, gpus_min=1, checkpoint_s=1.0, startup_s=0.5)
    found = run(wide, job("late", 2, 10, 20.5))
    # 20 iterations by 20.5 s are 80 of one GPU. It saves for 1 s; the late one computes until 31.5 s. It goes
    # on at 23 s with 2 GPUs: 8 iterations by 31 s are 96 in all, 24 of 4 GPUs; of its ninth half is lost.
    assert found.finish_s == pytest.approx([31.5 + 2.5 + 76.0, 31.5])
    assert found.start_s.tolist() == [0.0, 20.5]
    assert resizes(found) == [(1, 1), (0, 0)]
    assert [len(gpus) for gpus in found.gpus] == [4, 2]
    assert found.preemptions is not None
    assert found.preemptions.checkpoints_s == pytest.approx([5.0, 0.0])
    assert found.preemptions.lost_s == pytest.approx([0.5, 0.0])
    assert found.queueing_s == pytest.approx([0.0, 0.0])


def test_a_job_takes_what_is_idle_once_nobody_waits() -> None:
    found = run(job("first", 3, 10), job("wide", 4, 100, 1.0, gpus_min=1, checkpoint_s=1.0))
    # 9 iterations of one GPU are 2 of four; 2 s to save and to go on.
    assert found.finish_s == pytest.approx([10.0, 10.0 + 2.0 + 98.0])
    assert resizes(found) == [(0, 0), (0, 1)]
    assert len(found.gpus[1]) == 4


@pytest.mark.parametrize(
    ("iterations", "times", "end_s"),
    # At 10 s 9 iterations of one GPU are done, 4 of two: 2 I - 9 or I - 4 are left. It gains I - 5, which are
    # to be more than 4 s to save and to go on, and an iteration.
    [(10, 0, 21.0), (11, 1, 21.0)],
)
def test_a_job_grows_only_where_more_is_gained(iterations: int, times: int, end_s: float) -> None:
    found = run(job("first", 3, 10), job("wide", 2, iterations, 1.0, gpus_min=1, checkpoint_s=2.0))
    assert resizes(found)[1] == (0, times)
    assert found.finish_s[1] == pytest.approx(end_s)


@pytest.mark.parametrize(
    ("left", "times"),
    # The late one would wait for all that is left, and gains that but for 2 s of saving; the wide one loses
    # these, 2 s to go on, and either the late one's 10 s or as much again as is left.
    [(14, 0), (15, 1)],
)
def test_a_job_shrinks_only_where_more_is_gained(left: int, times: int) -> None:
    late = job("late", 2, 8, 20.0)
    found = run(job("wide", 4, 20 + left, gpus_min=2, checkpoint_s=2.0), late)
    assert resizes(found)[0][0] == times


def test_who_says_no_checkpoint_has_no_range_or_has_just_started_keeps_its_gpus() -> None:
    late = job("late", 2, 8, 20.0)
    assert resizes(run(job("wide", 4, 100, gpus_min=2), late))[0] == (0, 0)
    assert resizes(run(job("wide", 4, 100, gpus_min=2), late, checkpoint_s=0.0))[0] == (1, 1)
    assert resizes(run(job("wide", 4, 100, checkpoint_s=0.0), late))[0] == (0, 0)
    wide = job("wide", 4, 100, gpus_min=2, checkpoint_s=2.0)
    assert resizes(run(wide, late, resize=False, policy="srsf-requeue"))[0] == (0, 0)


@pytest.mark.parametrize(("arrival_s", "start_s"), [(1.0, 4.0), (3.75, 4.0), (4.0, 4.0), (4.5, 4.5)])
def test_a_job_shrinks_as_soon_as_it_has_computed_for_as_long_as_that_costs(
    arrival_s: float, start_s: float
) -> None:
    """That is 2 s to save and 2 s to go on, and nothing else happens by then."""
    found = run(job("wide", 4, 100, gpus_min=2, checkpoint_s=2.0), job("late", 2, 8, arrival_s))
    assert resizes(found)[0] == (1, 1)
    assert found.start_s.tolist() == [0.0, start_s]


def test_a_job_grows_as_soon_as_it_has_computed_for_as_long_as_that_costs() -> None:
    found = run(job("first", 3, 2), job("wide", 4, 100, 1.0, gpus_min=1, checkpoint_s=1.0))
    # The first is over at 2 s. By 3 s 2 iterations of one GPU are done, none of four; 2 s to save and go on.
    assert found.finish_s == pytest.approx([2.0, 3.0 + 2.0 + 100.0])
    assert resizes(found) == [(0, 0), (0, 1)]


def test_a_job_that_has_shrunk_grows_again_though_nothing_happens() -> None:
    wide = job("wide", 4, 100, gpus_min=2, checkpoint_s=2.0, startup_s=5.0)
    found = run(wide, job("late", 2, 3, 20.0))
    # It shrinks at 20 s with 15 iterations, 30 of two GPUs. The late one is over at 25 s; it goes on from
    # 29 s, and by 38 s has computed for the 9 s that growing costs it: 39 of two are 19 of four.
    assert found.finish_s == pytest.approx([38.0 + 2.0 + 7.0 + 81.0, 25.0])
    assert resizes(found)[0] == (1, 1)


def test_nobody_shrinks_where_the_one_that_waits_would_not_fit_either() -> None:
    wide = job("wide", 3, 100, gpus_min=2, checkpoint_s=0.0)
    found = run(job("fixed", 1, 50), wide, job("late", 3, 1, 20.0))
    assert resizes(found)[1] == (0, 0)
    assert found.start_s[2] == 100.0


def test_a_job_shrinks_so_often_and_no_more() -> None:
    shorts = [job(f"s{k}", 2, 2, 10.0 * (k + 1)) for k in range(MOST_SHRUNK + 2)]
    found = run(job("wide", 4, 200, gpus_min=2, checkpoint_s=0.0), *shorts)
    assert resizes(found)[0] == (MOST_SHRUNK, MOST_SHRUNK)
    assert (found.start_s[MOST_SHRUNK + 1 :] >= found.finish_s[0]).all()


def test_a_job_keeps_the_gpus_of_the_servers_where_it_has_most() -> None:
    jobs = [job("first", 2, 500), job("wide", 6, 100, 1.0, gpus_min=4, checkpoint_s=0.0)]
    found = run(*jobs, job("late", 2, 500, 20.0), cluster=PAIR)
    assert found.gpus[1] == ((1, 0), (1, 1), (1, 2), (1, 3))
    assert {server for server, _ in found.gpus[2]} == {0}


def test_the_row_says_how_often() -> None:
    jobs = (job("first", 3, 10), job("wide", 4, 100, 1.0, gpus_min=1, checkpoint_s=1.0))
    row = cluster_row(run(*jobs), JobSet(jobs=jobs), ONE)
    assert row.preemption is not None
    assert (row.preemption.preemptions, row.preemption.shrunk, row.preemption.grown) == (0, 0, 1)
    assert [each.grown for each in row.jobs] == [0, 1]
    assert row.setting is not None
    assert row.setting.resize
    preempting = cluster_row(run(*jobs, resize=False, policy="srsf-requeue"), JobSet(jobs=jobs), ONE)
    assert preempting.preemption is not None
    assert preempting.preemption.grown is None


def test_costs_are_said_where_they_are_assumed() -> None:
    jobs = JobSet(jobs=(job("a", 2, 1, gpus_min=1), job("b", 1, 1)))

    def said(**changes: Any) -> str | None:
        scheduling = Scheduling(**{"placement": "ff", "policy": "srsf-1", "resize": True} | changes)
        scheduling.check()
        return assumptions(jobs, ONE, [scheduling]).get("checkpoint_s")

    assert said() == "1 of 2 jobs without checkpoint_s: never resized"
    told = "1 of 2 jobs without checkpoint_s: 30 s to save one that is resized, as long to restore it"
    assert said(checkpoint_s=30.0) == told
    both = said(checkpoint_s=30.0, policy="srsf-requeue")
    assert both is not None
    assert both.startswith("2 of 2 jobs without checkpoint_s: 30 s to save one that is preempted or resized,")
    with pytest.raises(HocketError, match=r"preempts no job; take policy srsf-requeue or --resize"):
        said(checkpoint_s=30.0, resize=False)


def test_jobs_without_a_range_are_said_to_keep_their_number() -> None:
    scheduling = Scheduling(placement="ff", policy="srsf-1", resize=True)
    fixed, ranged = job("a", 2, 1), job("b", 2, 1, gpus_min=1)
    said = "no job has a range of GPUs (gpus_min): none is resized"
    assert assumptions(JobSet(jobs=(fixed,)), ONE, [scheduling])["gpus_min"] == said
    assert assumptions(JobSet(jobs=(fixed, ranged)), ONE, [scheduling])["gpus_min"] != said
