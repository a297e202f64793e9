"""Nodes that do not answer, or that have other disks: nobody waits for them, and no job runs twice."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.live.manager_messages import Cancel, Submit
from hocket.cluster.live.nodes import AbsentError, LocalNode, NodeError
from hocket.errors import HocketError
from hocket.launch.gate import CHECKPOINT_VARIABLE, GIVEN_UP
from tests.unit.cli.test_commands import GOLDEN
from tests.unit.cluster.live.clusters import LIMIT_S, Running, live_job, running
from tests.unit.cluster.live.test_inherited import AsALab
from tests.unit.cluster.live.test_manager import events, noting, rank_of


class Far(LocalNode):
    """A node that can be out of reach, while its ranks go on, or hang; ``own``: its disk, if it has one."""

    def __init__(self, folder: Path, k: int, own: Path | None = None) -> None:
        super().__init__(f"node{k}", folder / f"node{k}")
        self.gone = self.hangs = False
        self.own = own
        self.shares_files = own is None

    async def conditions(self) -> dict[str, int | None]:
        await self._reached()
        return await super().conditions()

    async def stop(self, key: str, grace_s: float) -> None:
        await self._reached()
        await super().stop(key, grace_s)

    async def start(
        self, key: str, command: Sequence[str], environment: Mapping[str, str], folder: str
    ) -> None:
        await self._reached()
        if self.own is not None:
            self.own.mkdir(exist_ok=True)
            environment = {**environment, CHECKPOINT_VARIABLE: str(self.own)}
        await super().start(key, command, environment, folder)

    async def forget(self, key: str) -> None:
        await self._reached()
        await super().forget(key)

    async def text(self, path: str) -> str:
        await self._reached()
        return await super().text(path if self.own is None else str(self.own / Path(path).name))

    async def _reached(self) -> None:
        if self.hangs:
            await asyncio.sleep(1e6)
        if self.gone:
            raise AbsentError(f"{self.name} is out of reach")


def far(folder: Path, count: int = 2) -> list[Far]:
    return [Far(folder, k) for k in range(count)]


def eventually(path: Path, text: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while text not in (path.read_text() if path.exists() else ""):
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def placed(cluster: Running, name: str) -> int:
    """The node that the job of that name is on; every node has one GPU."""
    status = cluster.until(lambda s: any(j.id == name and j.iteration > 2 for j in s.jobs))
    return next(job.gpus[0][0] for job in status.jobs if job.id == name)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["gone", "hangs"])
def test_jobs_of_a_lost_node_go_on_elsewhere_and_do_not_run_twice(tmp_path: Path, how: str) -> None:
    nodes = far(tmp_path)
    job = live_job("a", iterations=150)
    with running(
        tmp_path, [job], nodes=nodes, gpus=1, restarts=0, lost_after_s=1.0, until_idle=False
    ) as cluster:
        lost = placed(cluster, "a")
        setattr(nodes[lost], how, True)
        moved = cluster.until(lambda s: s.jobs[0].attempt == 2)
        assert moved.silent == (f"node{lost}",)
        assert moved.jobs[0].iteration > 2
        # Its old rank, out of our reach, is told at the gate.
        eventually(tmp_path / f"node{lost}" / "1-1-0.out", GIVEN_UP)
        again = cluster.until(lambda s: s.jobs[0].state == "finished").jobs[0]
        assert (again.gpus, again.attempt) == (((1 - lost, 0),), 2)
        setattr(nodes[lost], how, False)
        if how == "gone":
            cluster.until(lambda s: not s.silent)
            eventually(tmp_path / f"node{lost}" / "ended" / "1-1-0.out", GIVEN_UP)
    said = [what for _, _, what in events(tmp_path)]
    assert f"node{lost} has not answered for 1 s; it is tried again" in said
    assert len(said) < 20  # it is not said again and again


def test_a_job_on_a_node_that_does_not_answer_is_cancelled_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.attempts._CANCEL_S", 0.2)
    nodes = far(tmp_path)
    with running(tmp_path, [live_job("a", iterations=10**6)], nodes=nodes, gpus=1) as cluster:
        lost = nodes[placed(cluster, "a")]
        lost.gone = True
        assert cluster.ask(Cancel("a")).notes == ("a: cancelled",)
        assert cluster.join()["a"].state == "cancelled"
        lost.gone = False  # what is still there is ended behind us


def test_a_node_that_hangs_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    nodes = far(tmp_path)
    jobs = [live_job("a", iterations=10**6), noting("b", tmp_path)]
    with running(tmp_path, jobs[:1], nodes=nodes, gpus=1, until_idle=False) as cluster:
        nodes[placed(cluster, "a")].hangs = True
        cluster.ask(Submit((jobs[1],)))
        status = cluster.until(lambda s: s.jobs[1].state == "finished")
        assert status.jobs[0].state == "running"
        for node in nodes:
            node.hangs = False


def test_what_a_lost_node_brings_back_is_ended(tmp_path: Path) -> None:
    nodes = far(tmp_path)

    async def start() -> None:
        await nodes[0].start("7-1-0", ["sh", "-c", "echo begun; exec sleep 100"], {}, ".")

    asyncio.run(start())
    eventually(tmp_path / "node0" / "7-1-0.out", "begun")
    with running(tmp_path, nodes=nodes, until_idle=False):
        eventually(tmp_path / "node0" / "ended" / "7-1-0.status", str(-signal.SIGTERM))


@pytest.mark.slow
def test_replayed_jobs_go_on_where_disks_are_apart(tmp_path: Path) -> None:
    nodes = [Far(tmp_path, k, own=tmp_path / f"disk{k}") for k in range(2)]
    job = live_job("a", 2, iterations=60)
    with running(tmp_path, [job], nodes=nodes, gpus=1) as cluster:
        cluster.until(lambda s: s.jobs[0].iteration >= 30)
        os.kill(rank_of(tmp_path / "node1" / "1-1-1"), signal.SIGKILL)
        again = cluster.until(lambda s: s.jobs[0].attempt == 2)
        assert again.jobs[0].iteration >= 30
        record = cluster.join()["a"]
    assert (record.state, record.attempt) == ("finished", 2)
    assert record.parts[0] == pytest.approx(60 * 0.04, rel=0.2)  # none of them twice


def test_files_that_a_node_does_not_have_are_not_replayed(tmp_path: Path) -> None:
    nodes = [Far(tmp_path, k, own=tmp_path / f"disk{k}") for k in range(2)]
    step, plan = (str(GOLDEN / f"branches.{kind}.json") for kind in ("step", "ddp.plan"))
    with (
        running(tmp_path, nodes=nodes, until_idle=False) as cluster,
        pytest.raises(HocketError, match="'a' replays files of this machine, and node0 has others"),
    ):
        cluster.ask(Submit((live_job("a", step=step, plan=plan),)))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_gate_that_other_machines_cannot_reach_is_refused(tmp_path: Path, host: str) -> None:
    from hocket.cluster.live.nodes import check_reachable

    here, there = far(tmp_path)
    check_reachable(f"{host}:1", [here, there])
    there.here = False
    there.address = ""  # not known yet
    check_reachable(f"{host}:1", [here, there])
    there.address = "192.0.2.7"
    check_reachable("192.0.2.1:1", [here, there])
    with pytest.raises(HocketError, match=r"node1 \(192.0.2.7\) is another machine and cannot ask"):
        check_reachable(f"{host}:1", [here, there])


def test_a_cluster_whose_gate_cannot_be_reached_is_not_begun(tmp_path: Path) -> None:
    nodes = far(tmp_path)
    nodes[1].here = False
    nodes[1].address = "192.0.2.7"
    with (
        pytest.raises(HocketError, match=r"--listen 127\.0\.0\.1: node1"),
        running(tmp_path, nodes=nodes) as cluster,
    ):
        cluster.join()


@pytest.mark.slow
def test_ranks_that_fail_because_a_node_is_gone_use_up_no_restart(tmp_path: Path) -> None:
    nodes = far(tmp_path, 3)
    job = live_job("a", 2, iterations=40)
    with running(tmp_path, [job], nodes=nodes, gpus=1, restarts=0, lost_after_s=1.0) as cluster:
        status = cluster.until(lambda s: s.jobs[0].iteration > 2)
        lost = status.jobs[0].gpus[1][0]
        nodes[lost].gone = True
        os.kill(rank_of(tmp_path / f"node{lost}" / "1-1-1"), signal.SIGKILL)
        record = cluster.join()["a"]
        nodes[lost].gone = False
    assert (record.state, record.attempt, record.lost_attempts) == ("finished", 2, 1)


def test_a_node_whose_lab_is_not_up_does_not_answer(tmp_path: Path) -> None:
    lab: Any = AsALab()
    lab.namespace = str(tmp_path / "namespace")
    node = LocalNode("node0", tmp_path / "node0", lab, lab)
    for ask in (node.conditions, node.free_port):
        with pytest.raises(AbsentError, match="node0 does not answer: lab 'red' is not up"):
            asyncio.run(ask())
    Path(lab.namespace).touch()
    assert asyncio.run(node.conditions()) == {}


def test_a_node_whose_lab_goes_down_while_it_is_asked_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the node is gone is no failure of the job that was to begin there."""
    lab: Any = AsALab()
    lab.namespace = str(tmp_path / "namespace")
    node = LocalNode("node0", tmp_path / "node0", lab, lab)

    def goes(*_: object) -> Any:
        Path(lab.namespace).unlink()
        raise HocketError("'ip netns exec' failed: Cannot open network namespace")

    monkeypatch.setattr("hocket.cluster.live.nodes.port_in", goes)
    monkeypatch.setattr(lab, "command", goes)
    for ask in (node.free_port, lambda: node.start("1-1-0", ["true"], {}, ".")):
        Path(lab.namespace).touch()
        with pytest.raises(AbsentError, match="node0 does not answer: lab 'red' is not up"):
            asyncio.run(ask())


@pytest.mark.parametrize("fails", ["free_port", "Popen"])
def test_a_machine_that_fails_to_start_a_rank_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A job has no part in it where no port is found, or no process can be had."""
    monkeypatch.setattr("hocket.cluster.live.attempt_endings._RETRY_S", 0.05)
    (node,) = far(tmp_path, 1)
    failures = [NodeError("node0: what looks for a port was killed"), BlockingIOError(errno.EAGAIN, "busy")]
    failure = failures[fails == "Popen"]
    place, works = (node, node.free_port) if fails == "free_port" else (subprocess, subprocess.Popen)

    def once(*arguments: Any, **keywords: Any) -> Any:
        setattr(place, fails, works)
        raise failure

    setattr(place, fails, once)
    try:
        with running(tmp_path, [noting("a", tmp_path)], nodes=[node], gpus=1, restarts=1) as cluster:
            record = cluster.join()["a"]
    finally:
        setattr(place, fails, works)
    assert (record.state, record.attempt, record.own_failures) == ("finished", 2, 0)
    assert "cannot be started: node0: " in record.tried[0].why


def test_a_node_that_hangs_does_not_keep_ranks_of_others_from_ending_or_the_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.attempts._END_S", 1.0)
    nodes = far(tmp_path)
    job = live_job("a", 2, command=("sh", "-c", "sleep 1000"))
    with running(tmp_path, [job], nodes=nodes, gpus=1, until_idle=False) as cluster:
        cluster.until_ranks_run()
        nodes[0].hangs = True
        try:
            asyncio.run_coroutine_threadsafe(cluster.manager.end_ranks(), cluster._loop).result(LIMIT_S)
            cluster.until(lambda _: (tmp_path / "node1" / "1-1-1.asked").exists())
        finally:
            nodes[0].hangs = False


def test_a_folder_that_there_is_not_is_the_jobs_own_failure(tmp_path: Path) -> None:
    job = live_job("a", command=("true",), folder=str(tmp_path / "nowhere"))
    with running(tmp_path, [job], servers=1, gpus=1, restarts=3) as cluster:
        record = cluster.join()["a"]
    assert (record.state, record.attempt, record.own_failures) == ("failed", 1, 1)
    assert "No such file or directory" in record.why


def test_an_attempt_that_a_node_was_not_there_for_uses_up_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.cluster.live.attempt_endings._RETRY_S", 0.05)
    (node,) = far(tmp_path, 1)
    node.gone = True
    with running(tmp_path, [noting("a", tmp_path)], nodes=[node], gpus=1, restarts=0) as cluster:
        runs = cluster.manager._context.runs
        cluster.until(lambda _: "a" in runs and runs["a"].ending is not None)
        node.gone = False
        record = cluster.join()["a"]
    assert (record.state, record.attempt, record.lost_attempts) == ("finished", 2, 1)
    assert (tmp_path / "a.ran").read_text() == "0\n"
