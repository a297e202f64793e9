"""Jobs with a range of GPUs, on cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.paces import assumptions
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.gpu_type import GpuType
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.results.run_statistics import cluster_row
from hocket.cluster.simulator.outages import Maintenance, Outages
from hocket.cluster.simulator.simulate import ClusterRun, simulate
from hocket.errors import HocketError

SERVER = Cluster(num_servers=1, gpus_per_server=8)
# A transfer of 1e9 bytes takes a second.
PAIR = Cluster(num_servers=2, gpus_per_server=4, startup_s=0.0, per_byte_s=1e-9)


def job(name: str, gpus: int, seconds: int, arrival_s: float = 0.0, **changes: Any) -> Job:
    """A job that computes a second an iteration."""
    fields: dict[str, Any] = {
        **{"id": name, "model": "toy", "gpus": gpus, "iterations": seconds, "arrival_s": arrival_s},
        **{"forward_s": 0.25, "backward_s": 0.75, "size_bytes": 0.0, "memory_bytes": 1e9},
    }
    return Job(**fields | changes)


def run(*jobs: Job, cluster: Cluster = SERVER, outages: Outages | None = None, **changes: Any) -> ClusterRun:
    """On GPUs that nobody shares."""
    chosen = Scheduling(**{"placement": "lwf-1", "policy": "srsf-1", "jobs_per_gpu": 1} | changes)
    return simulate(JobSet(jobs=jobs), cluster, chosen, outages=outages)


def numbers(found: ClusterRun) -> list[int]:
    return [len(gpus) for gpus in found.gpus]


def test_it_starts_with_what_is_free_and_does_the_same_work() -> None:
    """8 GPUs in 6 iterations are 48 iterations of one GPU: 10 of 5 GPUs, rounded up."""
    found = run(job("first", 3, 30), job("range", 8, 6, 1.0, gpus_min=2))
    assert numbers(found) == [3, 5]
    assert found.start_s.tolist() == [0.0, 1.0]
    assert found.finish_s.tolist() == [30.0, 11.0]
    assert found.busy_gpu_s == 3 * 30 + 5 * 10


def test_it_waits_for_its_minimum() -> None:
    found = run(job("first", 7, 30), job("range", 8, 6, 1.0, gpus_min=2))
    assert (numbers(found), found.start_s.tolist()) == ([7, 8], [0.0, 30.0])


def test_it_may_have_more_in_its_range_than_the_cluster_has() -> None:
    found = run(job("range", 16, 3, gpus_min=2))
    assert (numbers(found), found.finish_s.tolist()) == ([8], [6.0])
    with pytest.raises(HocketError, match="job 'range' needs 9 GPUs and the cluster has 8; it can never"):
        run(job("range", 16, 3, gpus_min=9))


def test_gpus_that_others_need_are_left_to_them() -> None:
    """Of 8 GPUs that become free the first of three takes what is left beside two and three."""
    jobs = [job("now", 8, 10), job("range", 8, 1, 1.0, gpus_min=1)]
    jobs += [job("two", 2, 9, 2.0), job("three", 3, 9, 3.0)]
    found = run(*jobs, policy="fifo")
    assert numbers(found) == [8, 3, 2, 3]
    assert found.start_s.tolist() == [0.0, 10.0, 10.0, 10.0]


def test_what_cannot_start_keeps_nothing_free() -> None:
    jobs = [job("now", 5, 10), job("wide", 8, 9, 1.0), job("range", 8, 1, 2.0, gpus_min=1)]
    assert numbers(run(*jobs)) == [5, 8, 3]


def test_a_user_over_its_quota_keeps_nothing_free_either() -> None:
    ours = [job(f"a{k}", 2, 20, 1.0 + k, user="alice") for k in range(4)]
    jobs = [job("now", 8, 1, user="bob"), *ours, job("range", 8, 9, 0.5, gpus_min=1, user="bob")]
    found = run(*jobs, policy="fifo", quotas={"alice": 2})
    assert (found.start_s[5], numbers(found)[5]) == (1.0, 6)


def test_it_has_what_its_users_quota_has_room_for() -> None:
    jobs = [job("first", 3, 30, user="alice"), job("range", 8, 6, 1.0, gpus_min=2, user="alice")]
    found = run(*jobs, quotas={"alice": 5})
    assert (numbers(found), found.start_s.tolist()) == ([3, 2], [0.0, 1.0])
    with pytest.raises(HocketError, match="job 'range' needs 2 GPUs and alice's quota is 1"):
        run(jobs[1], quotas={"alice": 1})


def test_fair_share_counts_what_was_taken() -> None:
    """Alice's job had 6 of its 8 GPUs for 8 s, 48 GPU seconds, and Bob's 2 for 20 s."""
    jobs = [job("b", 2, 20, user="bob"), job("a", 8, 6, gpus_min=1, user="alice", arrival_s=0.5)]
    jobs += [job("next a", 8, 1, 1.0, user="alice"), job("next b", 8, 1, 2.0, user="bob")]
    found = run(*jobs, policy="fair-share")
    assert numbers(found)[1] == 6
    assert found.start_s[3] < found.start_s[2]


def test_it_takes_a_second_server_only_where_that_pays() -> None:
    """4 GPUs in one server: 2 s for each s of 8 GPUs; on two servers an iteration has a transfer as well."""
    for size_bytes, num, finish_s in ((0.5e9, 8, 15.0), (2e9, 4, 20.0)):
        found = run(job("range", 8, 10, gpus_min=1, size_bytes=size_bytes), cluster=PAIR)
        assert (numbers(found), found.finish_s.tolist()) == ([num], [finish_s])


def test_a_job_that_has_queued_for_long_holds_its_minimum() -> None:
    """Small jobs come one after the other; once it starves, two GPUs are kept free for it."""
    stream = [job(f"s{k}", 4, 10, 2.5 * k) for k in range(12)]
    found = run(*stream, job("range", 8, 5, 0.1, gpus_min=6), starvation_s=5.0, policy="fifo")
    late = run(*stream, job("range", 8, 5, 0.1, gpus_min=6), policy="fifo")
    assert found.start_s[12] < late.start_s[12]
    assert 6 <= numbers(found)[12] <= 8


def test_types_of_gpus_are_not_mixed() -> None:
    typed = Cluster(
        num_servers=2,
        gpus_per_server=4,
        gpu_types=(GpuType(name="a", num_gpus=4), GpuType(name="b", num_gpus=4)),
    )
    found = run(job("range", 8, 4, gpus_min=1, speeds={"a": 1.0, "b": 2.0}), cluster=typed)
    assert found.gpus == (((1, 0), (1, 1), (1, 2), (1, 3)),)
    assert found.finish_s.tolist() == [4.0]


@pytest.mark.parametrize("placement", ["ff", "ls", "lwf-1", "rand", "earliest", "blocks"])
def test_every_placement_chooses_a_number(placement: str) -> None:
    found = run(job("range", 8, 10, gpus_min=2), cluster=PAIR, placement=placement)
    assert numbers(found) == [8]
    taken = run(job("now", 5, 99), job("range", 8, 10, 1.0, gpus_min=2), cluster=PAIR, placement=placement)
    assert numbers(taken) == [5, 3]


def test_it_goes_on_with_another_number_after_a_failure() -> None:
    """It has kept 4 iterations of 8 GPUs, 32 of 80 of one; the other 48 are 12 of 4."""
    down = Outages(maintenance=(Maintenance(1, 4.5, 100.0),), checkpoint_every_s=1.0)
    found = run(job("range", 8, 10, gpus_min=2), cluster=PAIR, outages=down)
    assert numbers(found) == [4]
    assert found.finish_s.tolist() == [pytest.approx(16.5)]
    assert found.busy_gpu_s == pytest.approx(80.0)
    assert found.toll is not None
    assert found.toll.lost_gpu_s.tolist() == [pytest.approx(4.0)]
    row = cluster_row(found, JobSet(jobs=(job("range", 8, 10, gpus_min=2),)), PAIR)
    assert row.outages is not None
    assert row.outages.lost_gpu_hours == pytest.approx(4 / 3600)
    assert (row.jobs[0].gpus_min, row.jobs[0].gpus_max) == (2, 8)


def test_a_range_of_one_number_is_that_number() -> None:
    jobs = [job(f"{k}", k + 1, 9 - k, k / 2, size_bytes=1e9) for k in range(6)]
    same = [job(f"{k}", k + 1, 9 - k, k / 2, size_bytes=1e9, gpus_min=k + 1) for k in range(6)]
    first, second = run(*jobs, cluster=PAIR), run(*same, cluster=PAIR)
    assert first.finish_s.tolist() == second.finish_s.tolist()
    assert first.gpus == second.gpus
    assert assumptions(JobSet(jobs=tuple(same)), PAIR) == {}


def test_the_assumption_is_said() -> None:
    jobs = JobSet(jobs=(job("a", 2, 1), job("b", 2, 1, gpus_min=1)))
    (line,) = assumptions(jobs, SERVER).values()
    assert line.startswith("1 of 2 jobs may have fewer GPUs than gpus: each GPU's batch stays")
