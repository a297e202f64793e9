"""Jobs that leave their GPUs for shorter ones: by hand, on one server of four GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.assumptions import assumptions
from hocket.cluster.engine.policies.srsf_requeue import MOST_PREEMPTIONS
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.jobs_file import read_jobs, write_jobs
from hocket.cluster.simulator.simulate import ClusterRun, simulate
from hocket.errors import FormatError, HocketError, UnknownNameError

ONE = Cluster(num_servers=1, gpus_per_server=4)


def job(name: str, gpus: int, iterations: int, arrival_s: float = 0.0, **changes: Any) -> Job:
    """A job of iterations of a second."""
    fields: dict[str, Any] = {"id": name, "model": "m", "gpus": gpus, "iterations": iterations}
    fields |= {"forward_s": 0.25, "backward_s": 0.75, "size_bytes": 0.0, "memory_bytes": 16e9}
    return Job(**fields | {"arrival_s": arrival_s} | changes)


def run(*jobs: Job, **changes: Any) -> ClusterRun:
    scheduling = Scheduling(**{"placement": "lwf-1", "policy": "srsf-requeue"} | changes)
    found = simulate(JobSet(jobs=jobs), ONE, scheduling)
    assert found.preemptions is not None
    return found


def test_a_long_job_saves_leaves_and_is_restored() -> None:
    long = job("long", 4, 100, checkpoint_s=2.0, startup_s=1.0)
    found = run(long, job("short", 4, 10, 20.5, startup_s=3.0))
    # 1 s to launch, 19 iterations, half of one that is lost; 2 s to save, 3 s to launch, 10 s; 3 s to go on.
    assert found.start_s.tolist() == [0.0, 20.5]
    assert found.finish_s == pytest.approx([35.5 + 3.0 + 81.0, 35.5])
    assert found.preemptions.times.tolist() == [1, 0]
    assert found.preemptions.checkpoints_s == pytest.approx([5.0, 0.0])
    assert found.preemptions.lost_s == pytest.approx([0.5, 0.0])
    assert found.queueing_s == pytest.approx([15.0, 0.0])
    assert found.gpu_wait_s == pytest.approx([4.0, 5.0])


@pytest.mark.parametrize(
    ("left", "times"),
    # The short one would wait for all that is left, and gains that but for 2 s of saving; the long one loses
    # these, the short one's 10 s, and 2 s to be restored.
    [(16, 0), (17, 1)],
)
def test_a_job_is_preempted_only_where_more_is_gained(left: int, times: int) -> None:
    found = run(job("long", 4, 20 + left, checkpoint_s=2.0), job("short", 4, 10, 20.0))
    assert found.preemptions.times.tolist() == [times, 0]


@pytest.mark.parametrize(("arrival_s", "start_s"), [(1.0, 4.0), (3.75, 4.0), (4.0, 4.0), (4.5, 4.5)])
def test_a_job_is_preempted_as_soon_as_it_has_computed_for_as_long_as_that_costs(
    arrival_s: float, start_s: float
) -> None:
    """That is 2 s to save and 2 s to be restored, and nothing else happens by then."""
    found = run(job("long", 4, 100, checkpoint_s=2.0), job("short", 4, 1, arrival_s))
    assert found.preemptions.times[0] == 1
    assert found.start_s.tolist() == [0.0, start_s]


def test_a_job_is_preempted_so_often_and_no_more() -> None:
    shorts = [job(f"s{k}", 4, 2, 10.0 * (k + 1)) for k in range(MOST_PREEMPTIONS + 3)]
    found = run(job("long", 4, 1000, checkpoint_s=0.0), *shorts)
    assert found.preemptions.times[0] == MOST_PREEMPTIONS
    assert found.finish_s[0] == pytest.approx(1000.0 + 2.0 * MOST_PREEMPTIONS)
    assert (found.start_s[MOST_PREEMPTIONS + 1 :] >= found.finish_s[0]).all()


def test_who_says_no_checkpoint_starves_or_goes_first_keeps_its_gpus() -> None:
    short = job("short", 4, 10, 20.0)
    assert run(job("long", 4, 100), short).preemptions.times[0] == 0
    assert run(job("long", 4, 100), short, checkpoint_s=0.0).preemptions.times[0] == 1
    long = job("long", 4, 100, checkpoint_s=0.0)
    assert run(long, short, starvation_s=20.0).preemptions.times[0] == 0
    assert run(job("long", 4, 100, checkpoint_s=0.0, priority=1), short).preemptions.times[0] == 0


def test_as_few_leave_as_are_in_the_way() -> None:
    ones = [job(f"one{k}", 1, 100 + k, checkpoint_s=0.0) for k in range(4)]
    found = run(*ones, job("short", 1, 10, 20.0))
    assert found.preemptions.times.sum() == 1
    assert np.count_nonzero(found.queueing_s) == 1


def test_whoever_comes_to_gpus_on_which_a_job_saves_waits_for_that() -> None:
    """It saves from 20 to 22 s: for the first one, beside which there is room for the two others."""
    long = job("long", 4, 100, checkpoint_s=2.0)
    found = run(long, job("first", 1, 5, 20.0), job("beside", 2, 8, 20.0), job("late", 1, 3, 21.0))
    assert found.start_s.tolist() == [0.0, 20.0, 20.0, 21.0]
    assert found.finish_s[1:] == pytest.approx([27.0, 30.0, 25.0])
    assert found.gpu_wait_s[1:] == pytest.approx([2.0, 2.0, 1.0])
    assert found.preemptions.times.tolist() == [1, 0, 0, 0]


def test_the_field_is_read_written_and_checked(tmp_path: Path) -> None:
    jobs = JobSet(jobs=(job("a", 1, 1, checkpoint_s=2.5), job("b", 1, 1), job("c", 1, 1, checkpoint_s=0.0)))
    for name in ("jobs.json", "jobs.csv"):
        write_jobs(jobs, tmp_path / name)
        assert [each.checkpoint_s for each in read_jobs(tmp_path / name).jobs] == [2.5, None, 0.0]
    with pytest.raises(FormatError, match=r"checkpoint_s: -1.0 is not a number of seconds between 0 and 1e9"):
        JobSet(jobs=(job("a", 1, 1, checkpoint_s=-1.0),))
    misspelt = (tmp_path / "jobs.json").read_text().replace("checkpoint_s", "checkpoint")
    (tmp_path / "jobs.json").write_text(misspelt)
    with pytest.raises(UnknownNameError, match="checkpoint_s"):
        read_jobs(tmp_path / "jobs.json")


def test_costs_are_refused_where_nobody_is_preempted_and_said_where_they_are_assumed() -> None:
    with pytest.raises(HocketError, match=r"policy 'srsf-1' preempts no job; take policy srsf-requeue"):
        Scheduling(placement="ff", policy="srsf-1", checkpoint_s=1.0).check()
    with pytest.raises(HocketError, match=r"checkpoint of -1.0 s"):
        Scheduling(placement="ff", policy="srsf-requeue", checkpoint_s=-1.0).check()
    jobs = JobSet(jobs=(job("a", 1, 1, checkpoint_s=2.5), job("b", 1, 1)))

    def said(policy: str, checkpoint_s: float | None) -> dict[str, str]:
        return assumptions(jobs, ONE, [Scheduling(placement="ff", policy=policy, checkpoint_s=checkpoint_s)])

    assert said("srsf-1", None) == {}
    assert "1 of 2 jobs without checkpoint_s: never preempted" in said("srsf-requeue", None).values()
    (line,) = said("srsf-requeue", 30.0).values()
    assert line.endswith("without checkpoint_s: 30 s to save one that is preempted, as long to restore it")
