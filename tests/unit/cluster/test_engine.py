"""The engine and its clock on cases worked out by hand."""

from __future__ import annotations

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.simulate import ClusterRun, TimelineWindow, simulate
from hocket.errors import HocketError, UnknownNameError

B = 1e-9


def job(
    name: str,
    gpus: int = 1,
    iterations: int = 1,
    arrival_s: float = 0.0,
    *,
    forward_s: float = 1.0,
    backward_s: float = 2.0,
    size_bytes: float = 1e9,
    memory_bytes: float = 1e9,
    startup_s: float = 0.0,
) -> Job:
    return Job(
        id=name,
        model="toy",
        gpus=gpus,
        iterations=iterations,
        arrival_s=arrival_s,
        forward_s=forward_s,
        backward_s=backward_s,
        size_bytes=size_bytes,
        memory_bytes=memory_bytes,
        startup_s=startup_s,
    )


def run(
    *jobs: Job, policy: str = "srsf-1", servers: int = 1, per_server: int = 1, record: bool = False
) -> ClusterRun:
    cluster = Cluster(
        num_servers=servers,
        gpus_per_server=per_server,
        startup_s=0.0,
        per_byte_s=B,
        contention_per_byte_s=0.5 * B,
    )
    return simulate(
        JobSet(jobs=jobs),
        cluster,
        Scheduling(placement="ff", policy=policy),
        record=TimelineWindow() if record else None,
    )


def test_jobs_arrive_when_their_file_says() -> None:
    arrivals = [0.1, 0.3, 1.2345678901234567, 7.7, 1234.567]
    ran = run(*(job(f"j{k}", arrival_s=arrival) for k, arrival in enumerate(arrivals)), servers=5)
    assert ran.arrival_s.tolist() == arrivals
    assert ran.start_s.tolist() == arrivals, "there is a GPU for each"


def test_a_job_alone_takes_its_iterations() -> None:
    alone = run(job("a", iterations=1000, arrival_s=5.0))
    assert alone.finish_s[0] == 3005.0
    assert alone.makespan_s == 3000.0
    assert alone.gpu_utilization == 1.0
    assert alone.events == 2, "an arrival and an end: nothing else happens"


def test_a_job_alone_on_two_servers_adds_its_transfers() -> None:
    alone = run(job("a", 2, iterations=1000), servers=2)
    assert alone.finish_s[0] == 4000.0
    assert alone.transferring_s[0] == 1000.0
    assert alone.events == 2


def test_tasks_are_not_preempted() -> None:
    """The short job comes in the middle of the long one's forward task, and has the GPU from its end on."""
    both = run(job("long", iterations=10), job("short", iterations=2, arrival_s=0.5))
    assert both.finish_s.tolist() == [36.0, 7.0]
    assert both.gpu_wait_s.tolist() == [6.0, 0.5]


def test_an_arrival_at_the_end_of_a_task_has_the_gpu() -> None:
    """Ends come before arrivals, arrivals before GPUs choose: at one instant, the short job goes first."""
    both = run(
        job("long", iterations=10, forward_s=0.1, backward_s=0.2),
        job("short", iterations=2, arrival_s=0.7, forward_s=0.1, backward_s=0.2),
    )
    assert both.finish_s.tolist() == pytest.approx([3.6, 1.3], abs=1e-12)


def test_transfers_leave_gpus_to_others() -> None:
    """While a transfers, b computes; a's next iteration waits for b's task, which is not preempted."""
    both = run(
        job("a", 2, iterations=2, size_bytes=1.5e9),
        job("b", 2, iterations=9, size_bytes=1e9),
        servers=2,
        policy="fifo",
    )
    # a: 0-3, transfers 3-4.5; b: forward 3-4, backward 4-6; a: 6-9, transfers 9-10.5.
    assert both.finish_s[0] == 10.5
    assert both.gpu_wait_s[0] == 1.5


@pytest.mark.parametrize(
    ("arrival_s", "finish_s"),
    [(0.5, [41.0, 40.0, 1.5]), (1.0, [41.0, 40.0, 1.5]), (1.5, [40.0, 41.0, 3.5]), (3.0, [40.0, 41.0, 3.5])],
)
def test_both_tasks_of_a_job_alone_on_its_gpus_are_one_event(arrival_s: float, finish_s: list[float]) -> None:
    """a and b share a server and no GPU; c comes to one of a's GPUs, in its forward or its backward task.

    A recorded run passes all events. c goes first: a's backward task waits for it, or its next forward task.
    """
    jobs = [job(name, 3, iterations=10, memory_bytes=9e9) for name in ("a", "b")]
    c = job("c", arrival_s=arrival_s, forward_s=0.25, backward_s=0.25, memory_bytes=7e9)
    joined, recorded = (run(*jobs, c, servers=3, per_server=2, record=record) for record in (False, True))
    assert joined.gpus[2] == ((0, 0),)
    assert joined.finish_s.tolist() == finish_s
    assert recorded.finish_s.tolist() == finish_s
    assert joined.gpu_wait_s.tolist() == recorded.gpu_wait_s.tolist()
    assert joined.events < 0.75 * recorded.events


@pytest.mark.parametrize("arrival_s", [0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("record", [False, True])
def test_who_is_launched_for_a_while_computes_as_if_it_came_later(arrival_s: float, record: bool) -> None:
    """Until then its GPU is a's to compute on: in its forward or its backward task, or at the end of one."""
    jobs = [job(name, 3, iterations=10, memory_bytes=9e9) for name in ("a", "b")]
    times = {"forward_s": 0.25, "backward_s": 0.25, "memory_bytes": 7e9}
    late = job("c", arrival_s=arrival_s, **times)
    launched = job("c", arrival_s=arrival_s - 0.5, startup_s=0.5, **times)
    after, before = (run(*jobs, c, servers=3, per_server=2, record=record) for c in (late, launched))
    assert before.finish_s.tolist() == after.finish_s.tolist()
    assert before.start_s[2] == arrival_s - 0.5
    assert (before.gpu_wait_s - after.gpu_wait_s).tolist() == [0.0, 0.0, 0.5]
    assert (before.computing_s == after.computing_s).all()


def test_who_is_launched_holds_its_memory_and_its_place() -> None:
    two = run(
        job("a", iterations=2, startup_s=5.0, memory_bytes=10e9),
        job("b", iterations=1, arrival_s=1.0, startup_s=0.25, memory_bytes=10e9),
    )
    assert two.start_s.tolist() == [0.0, 11.0]
    assert two.finish_s.tolist() == [11.0, 14.25]
    assert two.queueing_s.tolist() == [0.0, 10.0]
    assert two.gpu_wait_s.tolist() == [5.0, 0.25]
    assert two.events == 6, "of each an arrival, a launch and an end"


def test_a_transfer_that_takes_no_time_ends_after_gpus_have_begun() -> None:
    """b's gradients are complete at 6 s, when a begins an iteration: b is let go and finds a computing.

    a and b share the first GPU, c and b the second, where c's forward task keeps b until 4 s.
    """
    jobs = [
        job("a", iterations=10, backward_s=1.0, memory_bytes=12e9),
        job("c", iterations=10, forward_s=4.0, backward_s=0.5, memory_bytes=12e9),
        job("b", 2, iterations=2, arrival_s=0.5, backward_s=1.0, size_bytes=0.0),
    ]
    for record in (False, True):
        three = run(*jobs, servers=2, record=record)
        # b: 1 to 3 s on the first GPU, 4 to 6 s on the second; then 7 to 9 s on the first.
        assert three.finish_s[2] == 9.0
        # a: forward 0 to 1, backward 3 to 4, again 4 to 6, then 6 to 7 and, after b, 9 to 10 s.
        assert three.finish_s[0] == 10.0 + 7 * 2.0


def test_memory_makes_jobs_queue_and_smaller_ones_pass() -> None:
    three = run(
        job("a", iterations=2, memory_bytes=10e9),
        job("b", iterations=1, arrival_s=1.0, memory_bytes=10e9),
        job("c", iterations=5, arrival_s=1.0, memory_bytes=6e9),
    )
    assert three.start_s.tolist() == [0.0, 6.0, 1.0]
    assert three.queueing_s.tolist() == [0.0, 5.0, 0.0]


def test_fifo_and_tiresias_order_by_arrival_and_attained_service() -> None:
    jobs = [job("long", iterations=3), job("short", iterations=1, arrival_s=1.0)]
    assert run(*jobs).finish_s.tolist() == [12.0, 4.0]
    assert run(*jobs, policy="fifo").finish_s.tolist() == [9.0, 12.0]
    # Neither has attained anything until the first iteration is complete.
    assert run(*jobs, policy="tiresias").finish_s.tolist() == [12.0, 6.0]


def test_record_writes_lanes_levels_and_stops() -> None:
    both = run(job("a", 2, iterations=2), job("b", 2, iterations=2), servers=2, policy="srsf-2", record=True)
    assert both.timeline is not None
    assert both.levels is not None
    names = [(lane.process, lane.name) for lane in both.timeline.lanes]
    assert ("server 0", "GPU 0") in names
    assert ("server 1", "link") in names
    assert both.levels[:, 1].max() >= 1
    kinds = [span.kind for span in both.timeline.spans]
    assert kinds.count("reduce") == 8
    assert kinds.count("forward") == 8
    short = simulate(
        JobSet(jobs=(job("a", iterations=5),)),
        Cluster(num_servers=1, gpus_per_server=1),
        Scheduling(placement="ff", policy="fifo"),
        record=TimelineWindow(from_s=3.5, most_spans=3),
    )
    assert short.timeline is not None
    assert [span.start_s for span in short.timeline.spans] == [4.0, 6.0, 7.0]


def test_what_is_not_drawn_is_not_simulated_one_by_one() -> None:
    """Before the recorded time, and when all that a timeline holds is written, iterations pass at once."""
    jobs, cluster = JobSet(jobs=(job("a", iterations=10**5),)), Cluster(num_servers=1, gpus_per_server=1)
    runs = [
        simulate(jobs, cluster, Scheduling(placement="ff", policy="fifo"), record=record)
        for record in (TimelineWindow(most_spans=5), TimelineWindow(from_s=1e6))
    ]
    for found in runs:
        assert found.finish_s[0] == 3e5
        assert found.events < 20
    assert runs[0].timeline is not None
    assert len(runs[0].timeline.spans) == 5


def test_nothing_is_drawn_from_after_the_end() -> None:
    found = simulate(
        JobSet(jobs=(job("a"),)),
        Cluster(num_servers=1, gpus_per_server=1),
        Scheduling(placement="ff", policy="fifo"),
        record=TimelineWindow(from_s=1e12),
    )
    assert found.timeline is not None
    assert not found.timeline.spans


def test_iterations_too_short_to_count_beside_long_jobs_are_refused() -> None:
    short = job("short", forward_s=2e-3, backward_s=0.0)
    with pytest.raises(HocketError, match=r"'short' computes 0\.002 s .* time is counted in steps of"):
        run(job("long", forward_s=1e7, iterations=10**6), short)
    assert run(short).finish_s[0] == pytest.approx(2e-3)


@pytest.mark.parametrize("name", ["srsf", "srsf-", "srsf-0x2", "srsf-01", "SRPT", ""])
def test_unknown_policies_are_named(name: str) -> None:
    with pytest.raises(UnknownNameError, match="choose one of: srsf-N, ada-srsf"):
        run(job("a"), policy=name)


def test_what_cannot_be_is_one_line() -> None:
    jobs, cluster = JobSet(jobs=(job("a"),)), Cluster(num_servers=1, gpus_per_server=1)
    with pytest.raises(HocketError, match="N is not from 1"):
        run(job("a"), policy="srsf-0")
    with pytest.raises(HocketError, match="chunk 0"):
        simulate(jobs, cluster, Scheduling(placement="ff", policy="psrsf", chunk_bytes=0.0))
    with pytest.raises(HocketError, match=r"Eq\. 5 knows servers alone"):
        Cluster(num_servers=2, gpus_per_server=1, racks=2)
    with pytest.raises(HocketError, match="give fewer iterations"):
        run(job("a", iterations=10**12, forward_s=1e9))


def test_long_traces_have_coarser_ticks() -> None:
    year = run(job("a", iterations=10**7, forward_s=1.0, backward_s=2.0), job("b", arrival_s=3.0001e7))
    assert year.finish_s.tolist() == [3e7, 30001003.0]
