"""GPUs that go from one job to the next: no rank begins there before the last one of another has left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.live.manager_messages import Cancel, Submit
from hocket.cluster.live.nodes import LocalNode
from hocket.cluster.live.runnable_jobs import LiveJob
from tests.unit.cluster.live.clusters import Running, live_job, running
from tests.unit.cluster.live.test_lost_nodes import Far, far

# Each rank says when it begins and when it leaves: once 'through' is there, or a while after SIGTERM.
_HOLDS = """import os, pathlib, signal, sys, time
def say(what):
    print(what, os.environ['HOCKET_GATE_ATTEMPT'], time.time(), file=open(sys.argv[1], 'a'))
def leave(*_):
    time.sleep(1.0)
    say('left')
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
say('begun')
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.05)"""


def holding(folder: Path) -> LiveJob:
    """The job "long", over once there is a file ``through``; it saves for a second when it is preempted."""
    command = (sys.executable, "-c", _HOLDS, str(folder / "long"), str(folder / "through"))
    fields: dict[str, Any] = {
        "iterations": 10**6,
        "checkpoint_s": 0.1,
        "memory_bytes": 10.0,
        "command": command,
    }
    return live_job("long", **fields)


def brief(name: str, folder: Path) -> LiveJob:
    command = (sys.executable, "-c", _HOLDS, str(folder / name), str(folder))
    return live_job(name, 1, memory_bytes=10.0, command=command)


def said(folder: Path, job: str, what: str, attempt: int | None = None) -> list[float]:
    """When ranks of a job, of one attempt if given, began or left."""
    path = folder / job
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    ours = [row for row in rows if attempt is None or row[1].endswith(f"-{attempt}")]
    return [float(at_s) for kind, _, at_s in ours if kind == what]


def until_preemptible(cluster: Running, folder: Path) -> None:
    cluster.until(lambda status: len(said(folder, "long", "begun")) == 1)
    cluster.until(lambda status: status.now_s - (status.jobs[0].placed_s or status.now_s) > 0.5)


def states(*over: str) -> Callable:
    return lambda status: all(job.state == "finished" for job in status.jobs if job.id in over)


class Telling(LocalNode):
    """A node that tells us when a rank has ended, before it tells the manager."""

    on_end: Callable[[], object] | None = None

    async def conditions(self) -> dict[str, int | None]:
        found = await super().conditions()
        if self.on_end is not None and any(status is not None for status in found.values()):
            told, self.on_end = self.on_end, None
            told()
        return found


def test_a_job_that_is_through_before_it_is_asked_to_leave_has_finished(tmp_path: Path) -> None:
    node = Telling("node0", tmp_path / "node0")
    with running(
        tmp_path,
        [holding(tmp_path)],
        nodes=[node],
        gpus=1,
        policy="srsf-requeue",
        until_idle=False,
    ) as cluster:
        until_preemptible(cluster, tmp_path)
        node.on_end = lambda: cluster.manager._commands.submit((brief("short", tmp_path),))
        (tmp_path / "through").touch()
        cluster.until(lambda status: len(status.jobs) == 2 and states("long", "short")(status))
    long, _ = cluster.manager.records
    assert (long.attempt, long.preempted) == (1, 0)


class Returning(Far):
    """A node that is out of reach until it is asked for a port."""

    returns = False

    async def free_port(self) -> int:
        self.gone = self.gone and not self.returns
        return await super().free_port()


@pytest.mark.slow
def test_a_node_that_was_lost_with_a_job_that_saves_has_left_it_before_the_next_begins(
    tmp_path: Path,
) -> None:
    node = Returning(tmp_path, 0)
    with running(
        tmp_path, [holding(tmp_path)], nodes=[node], gpus=1, policy="srsf-requeue",
        until_idle=False, lost_after_s=0.5,
    ) as cluster:  # fmt: skip
        until_preemptible(cluster, tmp_path)
        node.gone = node.returns = True
        cluster.ask(Submit((brief("short", tmp_path),)))
        cluster.until(lambda status: status.jobs[0].state == "queued")
        time.sleep(0.3)
        node.gone = node.returns = False
        cluster.until(states("short"))
        assert said(tmp_path, "short", "begun")[0] >= said(tmp_path, "long", "left", 1)[0]
        cluster.ask(Cancel("long"))


@pytest.mark.slow
def test_ranks_that_a_lost_node_brings_back_to_another_manager_have_left_before_others_begin(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {"gpus": 1, "until_idle": False, "lost_after_s": 0.5}
    nodes = far(tmp_path, 1)
    with running(tmp_path, [holding(tmp_path)], nodes=nodes, **settings, keep=True) as cluster:
        cluster.until(lambda status: len(said(tmp_path, "long", "begun")) == 1)
        nodes[0].gone = True
        cluster.until(lambda status: status.jobs[0].state == "queued")
    assert not said(tmp_path, "long", "left")
    with running(tmp_path, nodes=far(tmp_path, 1), **settings) as cluster:
        cluster.until(lambda status: len(said(tmp_path, "long", "begun", 2)) == 1)
        assert said(tmp_path, "long", "begun", 2)[0] >= said(tmp_path, "long", "left", 1)[0]
        cluster.ask(Cancel("long"))
