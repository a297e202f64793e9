"""Reasons: each of ten situations in one line that names the cause."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.cluster.live.manager_messages import AskEvents, AskLog, AskWhy, Cancel, Drain, Submit
from hocket.errors import HocketError
from tests.unit.cluster.live.clusters import Running, live_job, running
from tests.unit.cluster.live.test_full_disk import disk, fill
from tests.unit.cluster.live.test_lost_nodes import far
from tests.unit.cluster.live.test_manager import rank_of

__all__ = ["disk"]

WAITS = ("sh", "-c", "sleep 1000")


def why(cluster: Running, job: str) -> str:
    (line,) = cluster.ask(AskWhy(job)).notes
    assert "\n" not in line
    (shown,) = [each.reason for each in cluster.status().jobs if each.id == job] or [line]
    assert line.startswith(f"{job}: ")
    assert shown
    return line


def until_why(cluster: Running, job: str, pattern: str) -> str:
    """The line, once it says so."""
    cluster.until(lambda _: re.search(pattern, why(cluster, job)) is not None)
    return why(cluster, job)


@contextlib.contextmanager
def serving(folder: Path, *jobs, **settings) -> Iterator[Running]:
    with running(folder, jobs, until_idle=False, **settings) as cluster:
        yield cluster


@pytest.mark.parametrize("iterations", [4, 10**10])
def test_a_job_that_fits_on_gpus_that_another_holds(tmp_path: Path, iterations: int) -> None:
    """Whether or not the policy would have the other one first."""
    wide = live_job("wide", 4, command=WAITS, memory_bytes=10.0, iterations=iterations)
    jobs = [live_job("first", 3, command=WAITS, memory_bytes=10.0), wide]
    with serving(tmp_path, *jobs, starvation_s=0.0) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        cluster.ask(Submit((live_job("small", 1, command=WAITS, iterations=10**9, memory_bytes=10.0),)))
        line = until_why(cluster, "small", "waits for")
        assert re.fullmatch(
            r"small: waits for 1 GPU; 1 is free on node[01]; first has the others; "
            r"the free ones are held for wide, which has queued for 0 s or longer(; behind wide)?",
            line,
        )


def test_a_job_that_waits_for_gpus(tmp_path: Path) -> None:
    first = live_job("first", 3, command=WAITS, memory_bytes=10.0)
    wide, small = (live_job(n, k, command=WAITS, memory_bytes=10.0) for n, k in (("wide", 4), ("small", 2)))
    with serving(tmp_path, first) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        cluster.ask(Submit((wide, small)))
        line = until_why(cluster, "small", "waits for")
        assert re.fullmatch(r"small: waits for 2 GPUs; 1 is free on node[01]; first has the others", line)
        line = until_why(cluster, "wide", "waits for")
        assert re.fullmatch(
            r"wide: waits for 4 GPUs; 1 is free on node[01]; first has the others; behind small", line
        )


def test_a_job_with_a_range_of_gpus(tmp_path: Path) -> None:
    """It has the three that are free, which its ranks are told; then another one waits for its least."""
    ranks = tmp_path / "ranks"
    told = ("sh", "-c", f"echo $RANK of $WORLD_SIZE >> {ranks}; sleep 1000")
    first = live_job("first", command=WAITS, memory_bytes=10.0)
    wide, late = (live_job(n, 4, gpus_min=2, command=told, memory_bytes=10.0) for n in ("wide", "late"))
    with serving(tmp_path / "state", first) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        cluster.ask(Submit((wide,)))
        line = until_why(cluster, "wide", "runs a program")
        assert line.endswith("; has 3 of 2 to 4 GPUs")
        ranks.touch()
        cluster.until(lambda _: ranks.read_text().count("\n") == 3)
        assert set(ranks.read_text().split("\n")) == {"0 of 3", "1 of 3", "2 of 3", ""}
        cluster.ask(Submit((late,)))
        assert until_why(cluster, "late", "waits for") == (
            "late: waits for 2 to 4 GPUs; 0 are free; first and wide have the others"
        )
        jobs = {job.id: job for job in cluster.status().jobs}
        assert (jobs["wide"].wanted_min, jobs["wide"].wanted, len(jobs["wide"].gpus)) == (2, 4, 3)
        assert jobs["wide"].iterations == 6  # 4 of 4 GPUs are 16 of one
        with pytest.raises(HocketError, match="job 'more' needs 5 GPUs and the cluster has 4"):
            cluster.ask(Submit((live_job("more", 8, gpus_min=5, command=WAITS),)))


def test_a_job_that_waits_for_a_block(tmp_path: Path) -> None:
    """Each of two jobs leaves one of three GPUs of its node."""
    jobs = [live_job(name, 2, command=WAITS, memory_bytes=10.0) for name in "ab"]
    with serving(tmp_path, *jobs, gpus=3, placement="blocks") as cluster:
        cluster.until(lambda s: {job.state for job in s.jobs} == {"running"})
        cluster.ask(Submit((live_job("pair", 2, command=WAITS, memory_bytes=10.0),)))
        line = until_why(cluster, "pair", "waits for")
        assert re.fullmatch(
            r"pair: waits for 2 GPUs; 2 are free on node0 and node1; \w+ and \w+ have the others; "
            r"the free ones are not in one block of servers",
            line,
        )


def test_a_job_that_waits_for_its_users_quota(tmp_path: Path) -> None:
    jobs = [live_job(n, k, command=WAITS, user="alice") for n, k in (("first", 1), ("second", 2))]
    with serving(tmp_path, *jobs, quotas={"alice": 2}) as cluster:
        line = until_why(cluster, "second", "waits for")
        assert line == "second: waits for alice's quota: 1 of 2 GPUs held, it wants 2"
        with pytest.raises(HocketError, match=r"job 'third' needs 3 GPUs and alice's quota is 2; it can"):
            cluster.ask(Submit((live_job("third", 3, command=WAITS, user="alice"),)))
        cluster.ask(Submit((live_job("other", 3, command=WAITS, user="bob"),)))
        cluster.until(lambda s: {j.id: j.state for j in s.jobs}["other"] == "running")
        cluster.ask(Cancel("first"))
        cluster.until(lambda s: {j.id: j.state for j in s.jobs}["second"] == "running")


def test_a_job_that_waits_for_memory(tmp_path: Path) -> None:
    first = live_job("first", command=WAITS, memory_bytes=6.0)
    with serving(tmp_path, first, servers=1, gpus=1) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        cluster.ask(Submit((live_job("second", memory_bytes=5.0),)))
        assert until_why(cluster, "second", "waits for") == (
            "second: waits for 1 GPU with 5 B of memory each; 0 have it, node0 GPU 0 has 4 B beside first"
        )


def test_a_job_that_waits_for_gpus_with_some_memory_and_for_full_ones(tmp_path: Path) -> None:
    """It names who has the GPUs that are full, not only the best of the others."""
    first = live_job("first", 2, command=WAITS, memory_bytes=10.0)
    with serving(tmp_path, first, servers=1, gpus=3) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        cluster.ask(Submit((live_job("half", command=WAITS, memory_bytes=4.0),)))
        cluster.until(lambda s: s.jobs[1].state == "running")
        cluster.ask(Submit((live_job("wide", 3, memory_bytes=10.0),)))
        line = until_why(cluster, "wide", "waits for")
        assert re.fullmatch(
            r"wide: waits for 3 GPUs with 10 B of memory each; 0 have it, "
            r"node0 GPU \d has 6 B beside half; first has the others",
            line,
        )


def test_a_job_that_waits_for_a_link(tmp_path: Path) -> None:
    jobs = [
        live_job(name, 2, iterations=10**6, forward_s=1e-3, backward_s=1e-3, size_bytes=4e9) for name in "ab"
    ]
    with serving(tmp_path, *jobs, gpus=1, chunk_bytes=4e9) as cluster:
        cluster.until(lambda s: any(job.stage == "waits for the network" for job in s.jobs))
        lines = {why(cluster, "a"), why(cluster, "b")}
    waits, transfers = r"(.): waits for the network of node0 and node1, where . transfers", r".: transfers .*"
    assert any(re.fullmatch(waits, line) for line in lines), lines
    assert any(re.fullmatch(transfers, line) for line in lines), lines


def test_a_job_whose_node_is_drained(tmp_path: Path) -> None:
    with serving(tmp_path) as cluster:
        cluster.ask(Drain("node1", True))
        cluster.ask(Submit((live_job("a", 4),)))
        assert (
            until_why(cluster, "a", "waits") == "a: waits for 4 GPUs; 2 are free on node0; node1 is drained"
        )


def test_a_job_whose_node_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.node_watch._LATE_S", 0.2)
    nodes = far(tmp_path)
    with serving(
        tmp_path, live_job("a", 2, iterations=10**6), nodes=nodes, gpus=1, lost_after_s=3.0
    ) as cluster:
        cluster.until(lambda s: s.jobs[0].iteration > 2)
        nodes[1].gone = True
        assert until_why(cluster, "a", "does not answer;") == (
            "a: node1 does not answer; after 3 s of silence it is tried again elsewhere"
        )
        assert until_why(cluster, "a", "waits for") == (
            "a: waits for 2 GPUs; 1 is free on node0; node1 does not answer; "
            "attempt 1: node1 has not answered for 3 s"
        )
        nodes[1].gone = False


def test_a_rank_that_was_killed(tmp_path: Path) -> None:
    with serving(tmp_path, live_job("a", 4, iterations=10**6)) as cluster:
        cluster.until(lambda s: s.jobs[0].iteration > 2)
        os.kill(rank_of(tmp_path / "node0" / "1-1-1"), signal.SIGKILL)
        line = until_why(cluster, "a", r"attempt 1: ")
        assert "attempt 1: rank 1 on node0 was killed by SIGKILL" in line
        status = cluster.until(lambda s: s.jobs[0].attempt == 2).jobs[0]
        (tried,) = status.tried
        assert tried.why == "rank 1 on node0 was killed by SIGKILL"
        assert len(tried.gpus) == 4
        assert tried.start_s < tried.end_s <= status.placed_s


@pytest.mark.parametrize("restarts", [None, 1])
def test_a_rank_that_fails_by_itself(tmp_path: Path, restarts: int | None) -> None:
    program = (sys.executable, "-c", "raise RuntimeError('no data')")
    with serving(tmp_path, live_job("a", command=program, restarts=restarts), restarts=3) as cluster:
        record = cluster.until(lambda s: s.jobs[0].state == "failed").jobs[0]
        assert record.attempt == 1 + (restarts or 0)
        said = "rank 0 on node0 ended with status 1: RuntimeError: no data"
        assert why(cluster, "a") == (
            f"a: failed 2 times: {said}"
            if restarts
            else f"a: failed: {said}; it failed by itself and asked for no restarts (submit --restarts N)"
        )


def test_the_rank_that_was_killed_counts_and_not_its_peers_error(tmp_path: Path) -> None:
    program = "if [ $RANK = 1 ]; then sleep 0.2; kill -KILL $$; fi; exit 1"
    job = live_job("a", 2, command=("sh", "-c", program))
    with serving(tmp_path, job, servers=1, restarts=0) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "failed")
        assert why(cluster, "a") == "a: failed: rank 1 on node0 was killed by SIGKILL"


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -KILL $$"])
def test_a_rank_whose_guard_was_killed(tmp_path: Path, end: str) -> None:
    """Nothing is known of the rank then, so nothing is said of it."""
    killed = ("sh", "-c", f"kill -KILL $PPID; echo last words; {end}")
    with serving(tmp_path, live_job("a", command=killed), restarts=0) as cluster:
        record = cluster.until(lambda s: s.jobs[0].state == "failed").jobs[0]
        assert record.why == (
            "rank 0 on node0 ended without a status: its guard, the process that watches it, was killed:"
            " last words"
        )


def test_a_job_whose_last_attempt_was_killed(tmp_path: Path) -> None:
    killed = ("sh", "-c", "kill -KILL $$")
    with serving(tmp_path, live_job("a", command=killed), restarts=1) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "failed")
        assert why(cluster, "a") == (
            "a: failed in attempt 2, the last one that it has: rank 0 on node0 was killed by SIGKILL"
        )


def test_a_job_that_was_cancelled(tmp_path: Path) -> None:
    with serving(tmp_path, live_job("a", command=WAITS)) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        cluster.ask(Cancel("a"))
        cluster.until(lambda s: s.jobs[0].state == "cancelled")
        assert re.fullmatch(r"a: was cancelled by a command, .* after its arrival", why(cluster, "a"))
        told = cluster.ask(AskEvents(job="a")).events or ()
        assert [event.what for event in told] == [
            "placed on node0, attempt 1",
            "is cancelled by a command; its ranks are ending",
            "cancelled",
        ]


def test_a_job_whose_disk_is_full(disk: Path, tmp_path: Path) -> None:
    nodes = far(disk / "nodes", 1)
    with serving(tmp_path, nodes=nodes, gpus=1) as cluster:
        fill(disk)
        cluster.ask(Submit((live_job("a"),)))
        line = until_why(cluster, "a", "No space left")
        assert "cannot be started: a disk is full: node0: [Errno 28] No space left on device" in line
        (disk / "filler").unlink()
        cluster.until(lambda s: s.jobs[0].state == "finished")


def test_a_command_that_there_is_not(tmp_path: Path) -> None:
    with serving(tmp_path, live_job("a", command=("nosuch", "train.py"))) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "failed")
        line = why(cluster, "a")
        assert line.startswith(
            "a: failed: rank 0 on node0 cannot run its command: nosuch: No such file or directory"
        )
        assert cluster.status().jobs[0].attempt == 1


def test_a_job_that_is_larger_than_the_cluster(tmp_path: Path) -> None:
    with serving(tmp_path) as cluster:
        with pytest.raises(HocketError, match="needs 5 GPUs and the cluster has 4"):
            cluster.ask(Submit((live_job("huge", 5),)))
        (line,) = cluster.ask(AskWhy("huge")).notes
        assert re.match(r"huge: was refused: .*needs 5 GPUs and the cluster has 4", line)
        said = cluster.ask(AskEvents(job="huge")).events
        assert said is not None
        assert "was refused" in said[0].what
        for request in (AskLog("huge"), Cancel("huge")):
            with pytest.raises(HocketError, match=r"job 'huge' was refused: .*needs 5 GPUs"):
                cluster.ask(request)
        for request in (AskWhy("nobody"), AskEvents(job="nobody"), AskLog("nobody")):
            with pytest.raises(HocketError, match="job 'nobody' is unknown"):
                cluster.ask(request)
    with serving(tmp_path) as cluster:  # another manager, as after a restart
        assert cluster.ask(AskWhy("huge")).notes == (line,)
        cluster.ask(Submit((live_job("huge", 4, command=WAITS),)))
        assert until_why(cluster, "huge", "runs").startswith("huge: runs a program on node0 and node1")


def test_a_job_that_computes_or_waits_for_a_gpu_that_another_one_has(tmp_path: Path) -> None:
    long = {"iterations": 10**6, "forward_s": 3.0, "backward_s": 3.0, "size_bytes": 0.0}
    with serving(tmp_path, *(live_job(name, **long) for name in "ab"), servers=1, gpus=1) as cluster:
        status = cluster.until(lambda s: any(job.stage == "waits for its GPU" for job in s.jobs))
        (waits,) = [job for job in status.jobs if job.stage == "waits for its GPU"]
        other = "b" if waits.id == "a" else "a"
        assert why(cluster, waits.id) == f"{waits.id}: waits for node0 GPU 0, where {other} computes"
        assert why(cluster, other) == f"{other}: computes on node0"
        before = waits.waited_s or 0.0
        cluster.until(lambda s: max(job.waited_s or 0.0 for job in s.jobs) > before + 0.2)


def test_a_program_whose_ranks_have_yet_to_be_started_does_not_run(tmp_path: Path) -> None:
    nodes, goes_on = far(tmp_path, 1), threading.Event()
    start = nodes[0].start

    async def slow(*arguments) -> None:
        await asyncio.to_thread(goes_on.wait)
        await start(*arguments)

    nodes[0].start = slow
    with serving(tmp_path, live_job("a", command=WAITS), nodes=nodes, gpus=1) as cluster:
        try:
            cluster.until(lambda s: s.jobs[0].state == "running")
            assert why(cluster, "a") == "a: its ranks start on node0"
        finally:
            goes_on.set()
        assert until_why(cluster, "a", "runs a program")


def test_a_program_that_does_not_report_runs(tmp_path: Path) -> None:
    with serving(tmp_path, live_job("a", command=WAITS)) as cluster:
        job = cluster.until(lambda s: s.jobs[0].stage == "running").jobs[0]
        assert not job.reports
        assert until_why(cluster, "a", "runs a program") == (
            "a: runs a program on node0 that has told nothing yet (hocket.distribute does)"
        )
