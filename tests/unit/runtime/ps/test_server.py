"""A server that cannot listen, and workers that come, go, and do not come."""

from __future__ import annotations

import errno
import socket
import threading
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest
import torch

from hocket.errors import HocketError
from hocket.launch import Rule, ServedJob, control
from hocket.launch.control import Connection, Guest, connect
from hocket.launch.join_flags import JoinFlags
from hocket.runtime.ps.server.server import ParameterServer, _listener_at, _threads
from hocket.runtime.ps.server.worker_connection import WorkerConnection
from hocket.runtime.ps.wire.model_spec import TensorSpec
from hocket.runtime.ps.wire.training_messages import (
    Commit,
    Farewell,
    FrameLayout,
    NormsRequest,
    OptimizerStateRequest,
    Piece,
    PullRequest,
)
from hocket.runtime.ps.wire.transport import Header, Kind, TransportError
from tests.multiprocess.serving_setups import OPTIMIZERS, Layers, made, step
from tests.multiprocess.setups import batch
from tests.serving import client_of, served, wait_until
from tests.tokens import TOKEN


def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            HocketError, match=f"cannot listen at 127.0.0.1:{port} .*a free port in MASTER_ADDR"
        ):
            _listener_at(("127.0.0.1", port))
    with pytest.raises(HocketError, match=r"cannot listen at nowhere\.invalid:1"):
        _listener_at(("nowhere.invalid", 1))


def test_a_caller_that_has_gone_or_a_lack_of_files_leaves_a_server_listening() -> None:
    class Listener:
        errors: ClassVar = [
            *(ConnectionAbortedError(), TimeoutError(), OSError(errno.EMFILE, ""), OSError(errno.EPERM, "")),
            OSError(errno.EBADF, ""),
        ]

        def getsockname(self) -> tuple[str, int]:
            return "127.0.0.1", 1

        def settimeout(self, _: float) -> None:
            pass

        def accept(self) -> Any:
            raise self.errors.pop(0)

    job = ServedJob(address="127.0.0.1:1", token=TOKEN, rule=Rule())
    ParameterServer(job, 0, cast(Any, Listener())).door.run()
    assert not Listener.errors


def test_a_lack_of_threads_leaves_a_server_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, refused = threading.Thread.start, list[str]()

    def start(thread: threading.Thread) -> None:
        if thread.name == "hocket-greet" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        plain(thread)

    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        model.hocket.detach()
        assert refused == ["hocket-greet"]  # it came again

    monkeypatch.setattr(threading.Thread, "start", start)
    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert job.statuses == [0]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_worker_that_dies_while_it_is_admitted_may_come_again(mode: Any) -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(3):
            step(model, optimizer, *batch(worker, number))
        model.hocket.detach()

    with served(Rule(mode=mode, workers=2), 2) as job:
        server = job.servers[0]
        for worker in (0, 1):
            connect(job.job.address, job.job.credentials, Guest("worker", worker, ""), 5.0).close()
            wait_until(lambda: not server.core.peers)
        job.on_workers(work)
    assert job.statuses == [0, 0]


def test_what_a_worker_said_before_it_was_killed_ends_nobody_elses_training() -> None:
    """Its tensors' end may be seen before its last words are heard."""
    said = [PullRequest(), Commit([], "1.0"), NormsRequest("2.0"), OptimizerStateRequest(), Farewell()]

    def work(worker: int) -> None:
        (server,) = job.servers
        core = server.core
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        if worker == 1:
            peer = core.peers[1]
            core.handle_loss(peer, "its tensors end")
            for message in said:
                with pytest.raises(TransportError, match="it is gone"):
                    core.handle_message(peer, message)
            assert core.finished_workers == set()
            with core.condition:
                core.finished_workers.add(1)  # as far as this test goes
            client_of(model).close()
            return
        wait_until(lambda: 1 in core.finished_workers)
        optimizer.state_dict()  # is told though nobody hears what the other one asked for
        step(model, optimizer, *batch(worker, 1))
        model.hocket.detach()

    with served(Rule(mode="async", workers=2)) as job:
        job.on_workers(work)
    assert job.statuses == [0]


def test_a_launcher_hears_who_has_joined() -> None:
    def work(worker: int) -> None:
        assert noted.awaits(worker)
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        assert not noted.awaits(worker)
        model.hocket.detach()

    with served(Rule(mode="async", workers=2, staleness=1), servers=2) as job:
        noted = JoinFlags.made(job.job)
        for server in job.servers:
            server.core._join_flags = noted
        job.on_workers(work)
    noted.close()


def test_a_worker_that_dies_before_it_is_welcomed_may_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = threading.Event()

    def welcome(connection: Connection) -> None:
        if not lost.is_set():
            lost.set()
            raise TransportError("its connection ended")
        control.welcome(connection)

    def work(worker: int) -> None:
        with pytest.raises(TransportError, match="its connection"):
            connect(job.job.address, job.job.credentials, Guest("worker", worker, ""), 5.0)
        assert not server.core.peers
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        model.hocket.detach()

    monkeypatch.setattr("hocket.runtime.ps.server.server.welcome", welcome)
    with served(Rule(mode="async")) as job:
        (server,) = job.servers
        job.on_workers(work)
    assert job.statuses == [0]


@pytest.mark.parametrize(
    ("told", "threads"),
    [(None, 1), ("3", 3), ("4,2", 4), (" 2 ", 2), ("", 1), ("all", 1), ("0", 1), ("-2", 1)],
)
def test_a_server_takes_the_first_number_of_threads(
    told: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if told is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert _threads() == threads


def test_servers_that_no_worker_comes_back_to_end() -> None:
    def work(worker: int) -> None:
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        (server,) = job.servers
        server.job = msgspec.structs.replace(server.job, timeout_s=1.0)  # to come may take longer
        client_of(model).close()

    with served(Rule(mode="async")) as job:
        job.on_workers(work)
    assert job.statuses == [1]


def test_servers_to_which_no_worker_comes_end_with_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with served(Rule(), timeout_s=0.5) as job:
        pass
    assert job.statuses == [1]
    assert "server 0: no worker came within 0.5 s" in capfd.readouterr().err


def test_slices_of_two_steps_do_not_mix() -> None:
    """With backup workers a worker's next step may begin while slices of its last one are on their way."""
    rule = Rule(workers=2, backup=1)
    tensors = [TensorSpec("a", (6,), "float32")]
    expected: list[int] = []
    core = SimpleNamespace(
        job=SimpleNamespace(rule=rule, timeout_s=1.0, seed=0), shard=SimpleNamespace(tensors=tensors)
    )
    peer = WorkerConnection(cast(Any, core), 0, cast(Any, None))
    peer._transport = cast(Any, SimpleNamespace(expect=lambda tag, _buffer: expected.append(tag)))
    slices = [[Piece(0, part, 2)] for part in range(2)]
    peer.use_layout(FrameLayout([[Piece(0)]], slices, strict=False, drawn_anew=False, first_tag=3))
    frames = [slot.frame for slot in peer._pushes]

    def push(label: int, part: int) -> list[torch.Tensor]:
        frame = frames[part]
        frame.fill(0, torch.full((6,), float(10 * label + 1)))
        header = Header(kind=Kind.PUSH, tag=frame.tag, label=label, length=frame.buffer.numel())
        return [b.gradient for b in peer.handle_push(header) if b.gradient is not None]

    peer._begin_step(0)
    assert push(0, 0) == []
    peer._begin_step(1)
    assert push(1, 0) == []
    (old,) = push(0, 1)
    assert old.tolist() == [1.0] * 6
    (new,) = push(1, 1)
    assert new.tolist() == [11.0] * 6
