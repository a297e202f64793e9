"""Jobs that have queued for long, and jobs that share no GPU, on cases worked out by hand."""

from __future__ import annotations

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.simulate import ClusterRun, simulate
from hocket.errors import HocketError


def job(name: str, gpus: int, seconds: int, arrival_s: float) -> Job:
    return Job(
        id=name, model="toy", gpus=gpus, iterations=seconds, arrival_s=arrival_s, forward_s=0.25,
        backward_s=0.75, size_bytes=0.0, memory_bytes=1e9,
    )  # fmt: skip


def run(*jobs: Job, **scheduling: object) -> ClusterRun:
    """On one server of eight GPUs that nobody shares."""
    chosen = {"placement": "ff", "policy": "srsf-1", "jobs_per_gpu": 1} | scheduling
    cluster = Cluster(num_servers=1, gpus_per_server=8)
    return simulate(JobSet(jobs=jobs), cluster, Scheduling(**chosen))  # type: ignore[arg-type]


def stream(count: int) -> list[Job]:
    """Jobs of one GPU and 80 s, one every 10 s: as many as eight GPUs can have."""
    return [job(f"small{k:03}", 1, 80, 10.0 * k) for k in range(count)]


@pytest.mark.parametrize("policy", ["srsf-1", "ada-srsf", "tiresias", "fifo", "psrsf", "kway"])
def test_a_wide_job_behind_a_stream_of_small_ones_starts(policy: str) -> None:
    jobs = [*stream(100), job("wide", 8, 20, 75.0)]
    late = run(*jobs, policy=policy)
    assert late.start_s[-1] == late.finish_s[:-1].max() == 1070.0, "after all of them"
    found = run(*jobs, policy=policy, starvation_s=60.0)
    # At 140 s it has waited for 65: it holds all GPUs, the last of which is free at 210 s.
    assert found.start_s[-1] == 210.0
    assert found.finish_s[-1] == 230.0
    assert run(*jobs, policy="strict-fifo").start_s[-1] == 150.0, "nobody who comes later is placed before it"


def test_who_is_over_before_the_reservation_is_placed_meanwhile() -> None:
    jobs = [job(f"long{k}", 1, 100, 0.0) for k in range(6)]
    short, long = job("short", 1, 30, 20.0), job("other", 1, 200, 20.0)
    wide = job("wide", 8, 10, 1.0)
    found = run(*jobs, wide, short, long, starvation_s=10.0)
    # Two GPUs are free and held until 100 s: the one that takes 30 s may have one, the other one may not.
    assert found.start_s[-3:].tolist() == [100.0, 20.0, 110.0]


def test_a_reservation_never_moves_to_later() -> None:
    """Each small job is over in time, and so are all of them: none comes after the reservation."""
    jobs = [job("long", 7, 100, 0.0), job("wide", 8, 10, 1.0)]
    small = [job(f"small{k:02}", 1, 9, 10.0 + 9 * k) for k in range(30)]
    found = run(*jobs, *small, starvation_s=5.0)
    assert found.start_s[1] == 100.0
    assert (found.start_s[2:12] == [10.0 + 9 * k for k in range(10)]).all()
    assert found.start_s[12:].min() >= 110.0


def test_who_has_waited_longest_goes_first_and_the_next_holds_what_is_left() -> None:
    jobs = [job("long", 5, 100, 0.0), job("first", 6, 10, 1.0), job("second", 4, 10, 2.0)]
    found = run(*jobs, job("now", 2, 300, 50.0), starvation_s=20.0)
    # The first holds the three that are free, and three more; then the second holds the two that it leaves.
    assert found.start_s.tolist() == [0.0, 100.0, 110.0, 110.0]
    found = run(*jobs[:1], job("first", 8, 10, 1.0), job("now", 2, 30, 50.0), starvation_s=20.0)
    assert found.start_s.tolist() == [0.0, 100.0, 50.0], "who is over before may have them"


def test_jobs_that_share_no_gpu() -> None:
    two = [job("a", 8, 10, 0.0), job("b", 8, 10, 0.0)]
    assert run(*two).start_s.tolist() == [0.0, 10.0]
    assert run(*two, jobs_per_gpu=2).start_s.tolist() == [0.0, 0.0]
    three = [*two, job("c", 8, 10, 0.0)]
    assert run(*three, jobs_per_gpu=2).start_s[2] > 0.0
    assert run(*three, jobs_per_gpu=None).start_s.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"starvation_s": -1.0}, r"starvation after -1\.0 s: give seconds between 0 and 1e9"),
        ({"jobs_per_gpu": 0}, "0 jobs on a GPU: give a whole number from 1"),
    ],
)
def test_numbers_out_of_range_are_one_line(wrong: dict[str, float], line: str) -> None:
    with pytest.raises(HocketError, match=line):
        run(job("a", 1, 1, 0.0), **wrong)
