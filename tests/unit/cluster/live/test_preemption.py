"""Real ranks that leave their GPUs for a shorter job, and go on with what they saved."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.live.manager_messages import AskEvents, Cancel, Submit
from hocket.cluster.live.result_row import live_row
from hocket.cluster.results.run_statistics import ClusterRow, check_cluster_row
from tests.unit.cluster.live.clusters import live_job, running
from tests.unit.cluster.live.test_manager import rank_of
from tests.unit.cluster.live.test_reasons import serving, until_why, why

# Steps to the number that is asked for, from the one that was kept; keeps it when it is asked to end.
STEPS = """import os, pathlib, signal, sys, time
kept = pathlib.Path(os.environ['HOCKET_CHECKPOINT'], 'step')
step = int(kept.read_text()) if kept.exists() else 0
def leave(*_):
    kept.write_text(str(step))
    sys.exit(1)
signal.signal(signal.SIGTERM, leave)
while step < int(sys.argv[2]):
    print(step, file=open(sys.argv[1], 'a'))
    step += 1
    time.sleep(0.05)"""


def stepping(name: str, steps: int, folder: Path, **changes: object):
    command = (sys.executable, "-c", STEPS, str(folder / f"{name}.steps"), str(steps))
    fields = {"iterations": 10**6, "checkpoint_s": 0.1, "memory_bytes": 10.0, "command": command}
    return live_job(name, 1, **fields | changes)


def test_a_program_leaves_for_a_shorter_job_and_goes_on_where_it_saved(tmp_path: Path) -> None:
    long = stepping("long", 60, tmp_path)
    short = live_job("short", 1, arrival_s=1.0, memory_bytes=10.0)
    with running(tmp_path, [long, short], servers=1, gpus=1, policy="srsf-requeue") as cluster:
        records = cluster.join()
    assert {record.state for record in records.values()} == {"finished"}
    assert (records["long"].preempted, records["short"].preempted) == (1, 0)
    assert [each.why for each in records["long"].tried] == ["preempted for short"]
    assert records["short"].finish_s < records["long"].finish_s
    assert records["short"].attempt == 1
    steps = [int(line) for line in (tmp_path / "long.steps").read_text().split()]
    assert steps == sorted(steps), "it began anew"
    assert len(steps) <= 61, "more than the step under way was done twice"


def test_a_replayed_job_leaves_and_loses_no_iteration(tmp_path: Path) -> None:
    long = live_job("long", 2, iterations=60, memory_bytes=10.0, checkpoint_s=0.0)
    short = live_job("short", 2, arrival_s=1.0, memory_bytes=10.0)
    with running(tmp_path, [long, short], gpus=1, policy="srsf-requeue") as cluster:
        records = cluster.join()
    record = records["long"]
    assert (record.state, record.preempted, record.attempt) == ("finished", 1, 2)
    assert record.parts[0] == pytest.approx(60 * 0.04, rel=0.1)
    for policy, times in (("srsf-requeue", [1, 0]), ("srsf-1", [None, None])):
        row = live_row(
            [records["long"], records["short"]],
            Cluster(num_servers=2, gpus_per_server=1),
            Scheduling(placement="ls", policy=policy),
            source="jobs.json",
            events=1,
            wall_s=1.0,
        )
        assert row is not None
        assert [job.preemptions for job in row.jobs] == times
        assert (row.preemption and row.preemption.preemptions) == times[0]
        check_cluster_row(msgspec.convert(msgspec.to_builtins(row), ClusterRow), "row")


def test_status_says_who_saves_who_waits_for_that_and_who_is_never_preempted(tmp_path: Path) -> None:
    ignores = STEPS.replace("sys.exit(1)", "time.sleep(3)")
    command = (sys.executable, "-c", ignores, str(tmp_path / "steps"), "100000")
    long = stepping("long", 1, tmp_path, command=command, checkpoint_s=1.0)
    with serving(tmp_path, long, servers=1, gpus=1, policy="srsf-requeue") as cluster:
        cluster.until(lambda status: status.now_s - (status.jobs[0].placed_s or status.now_s) > 2.5)
        short = live_job("short", 1, command=("sleep", "1000"), memory_bytes=10.0)
        cluster.ask(Submit((short,)))
        assert until_why(cluster, "long", "saves").endswith("long: saves what it has: preempted for short")
        assert why(cluster, "short") == "short: has its GPUs once long has saved"
        assert {job.id: job.stage for job in cluster.status().jobs}["long"] == "saving"
        line = until_why(cluster, "long", "waits for")
        assert line.endswith("; attempt 1: preempted for short")
        assert until_why(cluster, "short", "never").endswith("; never preempted, it says no checkpoint_s")
        told = cluster.ask(AskEvents()).events
        assert any("preempted for short" in str(each) for each in told)
        for job in ("short", "long"):
            cluster.ask(Cancel(job))
        cluster.until(lambda status: all(job.state == "cancelled" for job in status.jobs))


@pytest.mark.parametrize("has_kept", [True, False])
def test_a_rank_that_is_killed_as_it_saves_is_in_the_events(tmp_path: Path, has_kept: bool) -> None:
    """What it kept earlier is what its job goes on with."""
    kept = "kept.write_text('3'); " if has_kept else ""
    saves = f"{kept}pathlib.Path(sys.argv[1] + '.saves').touch(); time.sleep(1000)"
    program = STEPS.replace("kept.write_text(str(step))", saves)
    command = (sys.executable, "-c", program, str(tmp_path / "long.steps"), "100000")
    long = stepping("long", 1, tmp_path, command=command, checkpoint_s=1.0)
    with serving(tmp_path, long, servers=1, gpus=1, policy="srsf-requeue") as cluster:
        cluster.until(lambda status: status.now_s - (status.jobs[0].placed_s or status.now_s) > 2.5)
        short = live_job("short", 1, command=("sleep", "1000"), iterations=1, memory_bytes=10.0)
        cluster.ask(Submit((short,)))
        cluster.until(lambda _: (tmp_path / "long.steps.saves").exists())
        os.kill(rank_of(tmp_path / "node0" / "1-1-0"), signal.SIGKILL)
        cluster.until(lambda status: status.jobs[0].state == "queued")
        told = [event.what for event in cluster.ask(AskEvents(job="long")).events or ()]
        goes_on = "goes on with what it has kept" if has_kept else "has kept nothing and begins anew"
        assert told[1:] == [
            "preempted for short",
            f"rank 0 on node0 was killed by SIGKILL when it was to save; the job {goes_on}",
        ]
        for job in ("short", "long"):
            cluster.ask(Cancel(job))
        cluster.until(lambda status: all(job.state == "cancelled" for job in status.jobs))
