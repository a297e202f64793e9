"""Where jobs are placed: small clusters whose answer can be seen."""

from __future__ import annotations

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.simulate import ClusterRun, simulate
from hocket.errors import HocketError, UnknownNameError


def job(name: str, gpus: int, *, iterations: int = 10, arrival_s: float = 0.0, memory: float = 1e9) -> Job:
    return Job(
        id=name,
        model="toy",
        gpus=gpus,
        iterations=iterations,
        arrival_s=arrival_s,
        forward_s=0.1,
        backward_s=0.2,
        size_bytes=1e8,
        memory_bytes=memory,
    )


def place(placement: str, *jobs: Job, servers: int = 2, per_server: int = 2, seed: int = 0) -> ClusterRun:
    cluster = Cluster(num_servers=servers, gpus_per_server=per_server)
    return simulate(JobSet(jobs=jobs), cluster, Scheduling(placement=placement, policy="srsf-1", seed=seed))


def test_first_fit_takes_the_first() -> None:
    run = place("ff", job("a", 1), job("b", 1), job("c", 3))
    assert run.gpus == (((0, 0),), ((0, 0),), ((0, 0), (0, 1), (1, 0)))


def test_least_loaded_spreads() -> None:
    run = place("ls", job("a", 1, iterations=5), job("b", 1, iterations=6), job("c", 2, iterations=9))
    assert run.gpus == (((0, 0),), ((0, 1),), ((1, 0), (1, 1)))


def test_lwf_keeps_wide_jobs_on_few_servers() -> None:
    """One GPU of each server is taken: LS puts a job of two on the idle ones, LWF-1 on one server."""
    jobs = [job("a", 3, iterations=1), job("b", 1, iterations=9), job("c", 2, arrival_s=0.1)]
    spread = [job("a", 1, iterations=5), job("b", 1, iterations=6), job("c", 2, iterations=9)]
    assert place("lwf-1", *spread).gpus[2] == ((1, 0), (1, 1))
    assert place("lwf-2", *spread).gpus[2] == ((1, 0), (1, 1))
    run = place("lwf-1", *jobs)
    assert run.gpus[0] == ((0, 0), (0, 1), (1, 0))
    assert run.gpus[2] == ((0, 0), (0, 1))


def test_lwf_without_room_on_the_first_server_goes_on_to_others() -> None:
    """Algorithm 1's cut of the servers would let the job wait."""
    full = job("a", 1, memory=16e9)
    run = place("lwf-1", full, job("b", 2, iterations=20, memory=16e9), servers=2)
    assert run.gpus[1] == ((1, 0), (1, 1))
    run = place("lwf-1", full, job("b", 3, iterations=20, memory=16e9), servers=2)
    assert run.start_s[1] == 0.0


def test_random_depends_on_the_seed_alone() -> None:
    jobs = [job(f"{i}", 2) for i in range(4)]
    runs = [place("rand", *jobs, servers=4, per_server=4, seed=seed).gpus for seed in (0, 0, 1, 2, 3)]
    assert runs[0] == runs[1]
    assert len(set(runs)) > 2


def test_earliest_stays_inside_a_server_and_a_rack() -> None:
    # Two jobs of two GPUs: each alone inside a server.
    run = place("earliest", job("a", 2), job("b", 2))
    assert sorted(run.gpus) == [((0, 0), (0, 1)), ((1, 0), (1, 1))]
    # A job of four GPUs takes two servers of one rack.
    cluster = Cluster(num_servers=4, gpus_per_server=2, sharing="max-min", racks=2, oversubscription=8.0)
    jobs = JobSet(jobs=(job("a", 2), job("b", 4, iterations=20)))
    for_rack = simulate(jobs, cluster, Scheduling(placement="earliest", policy="srsf-1"))
    assert {server for server, _ in for_rack.gpus[1]} in ({0, 1}, {2, 3})


def servers_of(run: ClusterRun, job: int) -> list[int]:
    return sorted({server for server, _ in run.gpus[job]})


def test_blocks_are_shared_whole_or_not_at_all() -> None:
    """LWF puts the second job on the servers with the least load, one of which is the first one's."""
    jobs = [job("a", 1), job("b", 4, arrival_s=0.1), job("c", 1, arrival_s=0.2), job("d", 4, arrival_s=0.3)]
    by_load = place("lwf-1", *jobs, servers=4)
    assert servers_of(by_load, 1) == [1, 2]
    assert servers_of(by_load, 3) == [0, 3]
    run = place("blocks", *jobs, servers=4)
    assert servers_of(run, 1) == [2, 3]
    assert servers_of(run, 3) == [0, 1]


def test_a_job_waits_for_a_block_with_room() -> None:
    """Two GPUs are free, on a server each; LWF takes them, and its job has transfers."""
    full = [job(f"{i}", 2, memory=16e9, iterations=20) for i in range(2)]
    pair = job("pair", 2, iterations=30, memory=16e9)
    assert servers_of(place("lwf-1", *full, pair, per_server=3), 2) == [0, 1]
    run = place("blocks", *full, pair, per_server=3)
    assert len(servers_of(run, 2)) == 1
    assert run.start_s[2] == pytest.approx(6.0)


def test_a_block_is_where_the_least_service_is_lost() -> None:
    """The last job delays a long one by its 3.6 s; behind two short ones it would wait for 6.3 s."""
    jobs = [
        job(f"{i}", 2, iterations=iterations, arrival_s=i / 100)
        for i, iterations in enumerate((100, 10, 11, 12))
    ]
    assert [servers_of(place("blocks", *jobs), i) for i in range(4)] == [[0], [1], [1], [0]]
    assert servers_of(place("lwf-1", *jobs), 3) == [1], "where the load is less"


@pytest.mark.parametrize("num_servers", [1, 2, 3, 5, 6, 7])
def test_any_job_that_the_cluster_holds_has_a_block(num_servers: int) -> None:
    for gpus in range(1, 2 * num_servers + 1):
        run = place("blocks", job("a", gpus, memory=16e9), servers=num_servers)
        assert len(servers_of(run, 0)) >= (gpus + 1) // 2


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([job("big", 5)], "job 'big' needs 5 GPUs and the cluster has 4"),
        ([job("fat", 1, memory=17e9)], "job 'fat' needs 17000000000 bytes of memory of each GPU"),
    ],
)
def test_a_job_that_never_fits_is_refused(jobs: list[Job], said: str) -> None:
    with pytest.raises(HocketError, match=said):
        place("ff", *jobs)


@pytest.mark.parametrize("name", ["lwf", "lwf-x", "LS", "lwf-", "lwf-01", ""])
def test_unknown_placements_are_named(name: str) -> None:
    with pytest.raises(UnknownNameError, match="choose one of: rand, ff, ls, lwf-K, earliest"):
        place(name, job("a", 1))


def test_kappa_has_a_range() -> None:
    with pytest.raises(HocketError, match="K is not from 1"):
        place("lwf-0", job("a", 1))
