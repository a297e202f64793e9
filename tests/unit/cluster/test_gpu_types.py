"""Clusters of several types of GPUs on cases worked out by hand, and what they refuse."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.awaited_types import check_types_differ
from hocket.cluster.engine.paces import assumptions
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.gpu_type import GpuType
from hocket.cluster.jobs import Batch, Job, JobSet
from hocket.cluster.simulator.simulate import ClusterRun, simulate
from hocket.errors import HocketError

# A server of two GPUs of each type.
CLUSTER = Cluster(
    num_servers=2,
    gpus_per_server=2,
    startup_s=0.0,
    per_byte_s=1e-9,
    gpu_types=(GpuType(name="v100", num_gpus=2), GpuType(name="a100", num_gpus=2, memory_bytes=80e9)),
)
FASTER = {"v100": 1.0, "a100": 2.0}


def job(
    name: str,
    gpus: int = 1,
    iterations: int = 10,
    arrival_s: float = 0.0,
    *,
    speeds: dict[str, float] | None = None,
    memory_bytes: float = 16e9,
    **more: object,
) -> Job:
    """It computes for a second an iteration at speed 1, and has a GPU of 16 GB for itself."""
    return Job(
        id=name, model="toy", gpus=gpus, iterations=iterations, arrival_s=arrival_s, forward_s=0.25,
        backward_s=0.75, size_bytes=0.0, memory_bytes=memory_bytes, speeds=speeds or {}, **more,
    )  # type: ignore[arg-type] # fmt: skip


def run(*jobs: Job, placement: str = "ff", cluster: Cluster = CLUSTER, **scheduling: object) -> ClusterRun:
    chosen = {"placement": placement, "policy": "srsf-1", "jobs_per_gpu": 1} | scheduling
    return simulate(JobSet(jobs=jobs), cluster, Scheduling(**chosen))  # type: ignore[arg-type]


@pytest.mark.parametrize("placement", ["ff", "ls", "lwf-1", "rand", "earliest"])
def test_a_job_has_the_fastest_type_that_is_free_now(placement: str) -> None:
    found = run(*(job(f"j{k}", 2, speeds=FASTER) for k in range(3)), placement=placement)
    assert found.gpus[0] == ((1, 0), (1, 1))
    assert found.gpus[1] == ((0, 0), (0, 1)), "it does not wait for the faster ones"
    assert found.start_s.tolist() == [0.0, 0.0, 5.0]
    assert found.finish_s.tolist() == [5.0, 10.0, 10.0]
    assert found.computing_s.tolist() == [5.0, 10.0, 5.0]


def test_a_gang_is_of_one_type() -> None:
    both = run(job("one", speeds={"a100": 1.0}), job("two", 2, arrival_s=1.0, speeds={"a100": 1.0}))
    assert both.start_s.tolist() == [0.0, 10.0], "two GPUs of another type are idle meanwhile"
    three = run(job("v", speeds={"v100": 1.0}), job("a", speeds={"a100": 1.0}), job("two", 2, arrival_s=1.0))
    assert three.start_s.tolist() == [0.0, 0.0, 10.0], "one GPU of each type is free, and no two of one"


def test_a_job_waits_for_the_only_type_that_it_accepts() -> None:
    found = run(job("long", 2, speeds={"a100": 1.0}), job("a", arrival_s=1.0, speeds={"a100": 0.5}), job("b"))
    assert found.start_s.tolist() == [0.0, 10.0, 0.0]
    assert found.finish_s.tolist() == [10.0, 30.0, 10.0]


def test_the_queue_goes_by_the_best_type_of_each_job() -> None:
    """At speed 1 both have 10 s left; b would take 5 s at best, and so goes first."""
    first = [job(f"first{k}", 2, iterations=5) for k in range(2)]
    a, b = job("a", 2, arrival_s=1.0), job("b", 2, arrival_s=2.0, speeds={"v100": 1.0, "a100": 2.0})
    found = run(*first, a, b)
    assert found.start_s.tolist() == [0.0, 0.0, 5.0, 5.0]
    assert found.gpus[3] == ((1, 0), (1, 1))
    assert found.gpus[2] == ((0, 0), (0, 1))


def test_memory_is_each_types_own() -> None:
    found = run(job("large", memory_bytes=60e9), job("small"))
    assert found.gpus == (((1, 0),), ((0, 0),))
    with pytest.raises(HocketError, match="'x' needs 60000000000 bytes of memory of each GPU of v100 and"):
        run(job("x", speeds={"v100": 1.0}, memory_bytes=60e9))


def test_batches_are_complete_and_due_sooner_on_a_faster_type() -> None:
    """At twice the speed an iteration is 0.5 s, its batch complete at 0.4 and due at 0.1 s of the next."""
    batch = Batch(size_bytes=1e8, ready_s=0.8, due_s=0.2)
    wide = Job(
        id="wide", model="toy", gpus=2, iterations=2, arrival_s=0.0, forward_s=0.25, backward_s=0.75,
        size_bytes=1e8, memory_bytes=16e9, batches=(batch,), speeds={"a100": 2.0},
    )  # fmt: skip
    spread = dataclasses.replace(CLUSTER, num_servers=4, gpus_per_server=1)
    found = run(wide, cluster=spread)
    # 0.1 s of transfer: it arrives right at the end of the iteration.
    assert found.finish_s.tolist() == pytest.approx([1.0])
    assert found.transferring_s.tolist() == [0.0]


def test_a_job_that_has_queued_for_long_holds_the_type_on_which_it_is_over_first() -> None:
    busy = [job(f"v{k}", iterations=10 + 10 * k, speeds={"v100": 1.0}) for k in range(2)]
    busy += [job(f"a{k}", iterations=30, speeds={"a100": 1.0}) for k in range(2)]
    wide = job("wide", 2, iterations=40, arrival_s=1.0, speeds=FASTER)
    # On v100 it would be over at 20 + 40 s, on a100 at 30 + 20 s: nobody holds the v100 that is free at 10 s.
    long = job("long", iterations=50, arrival_s=2.0, speeds={"v100": 1.0})
    found = run(*busy, wide, long, starvation_s=0.0)
    assert found.start_s[-2:].tolist() == [30.0, 10.0]
    assert found.gpus[-2] == ((1, 0), (1, 1))
    # On a100 as slow, it is over first on v100 and holds those.
    found = run(*busy, msgspec.structs.replace(wide, speeds={}), long, starvation_s=0.0)
    assert found.start_s[-2:].tolist() == [20.0, 60.0]


BUSY = [job(f"busy{k}", iterations=20, speeds={"a100": 2.0}) for k in range(2)]  # both A100s, for 10 s


@pytest.mark.parametrize(("iterations", "start_s", "finish_s"), [(18, 1.0, 19.0), (19, 10.0, 19.5)])
def test_a_job_waits_for_a_faster_type_where_it_is_over_sooner(
    iterations: int, start_s: float, finish_s: float
) -> None:
    """At 1 s: on a V100 it takes as many seconds as iterations, on an A100 9 s and half as many."""
    late = job("late", iterations=iterations, arrival_s=1.0, speeds=FASTER)
    found = run(*BUSY, late, wait_for_faster=True)
    assert (found.start_s[-1], found.finish_s[-1]) == (start_s, finish_s)
    assert run(*BUSY, late).start_s[-1] == 1.0
    wide = job("late", 2, iterations=iterations, arrival_s=1.0, speeds=FASTER)
    assert run(*BUSY, wide, wait_for_faster=True).finish_s[-1] == finish_s


def test_jobs_wait_one_behind_the_other_as_long_as_that_pays() -> None:
    """On an A100 each takes 20 s, on a V100 40 or 60 s: the third is over at 50 s behind the first two."""
    two = [job(f"j{k}", iterations=40, arrival_s=0.0, speeds=FASTER) for k in range(2)]
    third, slower = (
        job("k", iterations=40, speeds=FASTER),
        job("k", iterations=40, speeds={"a100": 2.0, "v100": 0.6}),
    )
    assert run(*BUSY, *two, third, wait_for_faster=True).start_s.tolist() == [0.0, 0.0, 10.0, 10.0, 0.0]
    assert run(*BUSY, *two, slower, wait_for_faster=True).start_s.tolist() == [0.0, 0.0, 10.0, 10.0, 30.0]


def test_a_job_that_has_queued_for_long_waits_for_no_type() -> None:
    late, event = job("late", iterations=30, speeds=FASTER), job("event", iterations=1, arrival_s=6.0)
    assert run(*BUSY, late, event, wait_for_faster=True).start_s[2] == 10.0
    assert run(*BUSY, late, event, wait_for_faster=True, starvation_s=5.0).start_s[2] == 6.0


def test_to_wait_for_a_faster_type_of_one_is_refused() -> None:
    one = dataclasses.replace(CLUSTER, gpu_types=())
    scheduling = Scheduling(placement="ff", policy="srsf-1", wait_for_faster=True)
    check_types_differ(scheduling, CLUSTER)
    with pytest.raises(HocketError, match="and the cluster has one type; name several"):
        check_types_differ(scheduling, one)


def test_one_type_computes_at_its_speed_and_without_a_name_at_speed_1() -> None:
    one = dataclasses.replace(CLUSTER, gpu_types=(GpuType(name="a100", num_gpus=4),))
    nameless = dataclasses.replace(CLUSTER, gpu_types=())
    fast, plain = job("fast", speeds=FASTER), job("plain")
    assert run(fast, plain, cluster=one).finish_s.tolist() == [5.0, 10.0]
    assert run(fast, plain, cluster=nameless).finish_s.tolist() == [10.0, 10.0]
    both = JobSet(jobs=(fast, plain))
    assert assumptions(both, one) == {}
    assert assumptions(both, nameless)["speeds"] == (
        "1 of 2 jobs with speeds on types of GPUs, and the cluster's have no type: computing is at speed 1"
    )
    assert assumptions(both, CLUSTER)["speeds"] == (
        "1 of 2 jobs without speeds on types of GPUs: computing takes the same on each"
    )


def test_what_can_never_be_placed_is_refused() -> None:
    with pytest.raises(HocketError, match=r"'x' runs on k80 or p100 and the cluster has v100 and a100"):
        run(job("x", speeds={"k80": 1.0, "p100": 2.0}))
    with pytest.raises(HocketError, match=r"'x' needs 3 GPUs of a100 and the cluster has 2; it can never"):
        run(job("x", 3, speeds={"a100": 1.0}))
    with pytest.raises(HocketError, match=r"'x' needs 3 GPUs of v100 or a100 and the cluster has 2 of one"):
        run(job("x", 3))


@pytest.mark.parametrize(
    ("types", "why"),
    [
        ((GpuType(name="A 100", num_gpus=4),), "type of GPUs 'A 100': a type is named by small letters"),
        ((GpuType(name="a100", num_gpus=3),), "types of 3 GPUs in a cluster of 4; give every GPU a type"),
        (
            (GpuType(name="a100", num_gpus=0), GpuType(name="b", num_gpus=4)),
            "0 GPUs of a100",
        ),
        (
            (GpuType(name="a", num_gpus=2), GpuType(name="a", num_gpus=2, memory_bytes=8e9)),
            "a has two sizes of memory",
        ),
        ((GpuType(name="a", num_gpus=4, memory_bytes=0.5),), "0.5 bytes of memory of each a is not between"),
    ],
)
def test_types_that_are_none_are_refused(types: tuple[GpuType, ...], why: str) -> None:
    with pytest.raises(HocketError, match=why):
        dataclasses.replace(CLUSTER, gpu_types=types)
