"""Somebody on the path of a control connection: passes it on, or ends it, and says nothing that counts."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from hocket.cluster.live.manager_address import Contact, ask_manager
from hocket.cluster.live.manager_messages import Submit
from hocket.errors import HocketError
from hocket.launch import Rule
from hocket.launch.control import Connection, Guest, TransportError, Welcome, connect, framed, reach
from hocket.launch.credentials import Credentials
from hocket.launch.gate import Compute, Gate, Go, Join, ToRank
from hocket.launch.job import split_address
from hocket.launch.lost_peers import PeerLostError
from hocket.launch.tls import new_identity, server_context
from hocket.launch.traffic import Leader, Ring
from hocket.runtime.ps.wire.training_messages import Farewell
from tests.multiprocess.serving_setups import OPTIMIZERS, Layers, made, step
from tests.multiprocess.setups import batch
from tests.serving import served, wait_until
from tests.tokens import CREDENTIALS, FINGERPRINT, SECRET, TOKEN
from tests.unit.cluster.live.clusters import LIMIT_S, as_rank, live_job, running
from tests.unit.cluster.live.test_manager import noting


class Relay:
    """Stands before ``address``, and keeps what callers say; :meth:`say` adds something of its own."""

    def __init__(self, address: str, listening: socket.socket) -> None:
        self.heard = bytearray()
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self._to, self._listening = address, listening
        self._called: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def say(self, data: bytes) -> None:
        """Say something to the server on the last connection, as if its caller did."""
        with contextlib.suppress(OSError):  # the server may have ended it
            self._called[-1].sendall(data)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                called = socket.create_connection(split_address(self._to))
                self._called.append(called)
                for pair in ((caller, called, self.heard), (called, caller, bytearray())):
                    threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            kept += data
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relayed(address: str) -> Iterator[Relay]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Relay(address, listening)


class Impostor:
    """Ends TLS with a certificate of its own, and keeps what callers say within."""

    def __init__(self, listening: socket.socket) -> None:
        self.heard: list[bytes] = []
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self._listening = listening
        self._context = server_context(new_identity())
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = Connection(self._listening.accept()[0])
                connection.set_timeout(LIMIT_S)
                tls = connection.secure(self._context, server_side=True)
                self.heard.append(tls.receive(1 << 16))


@contextlib.contextmanager
def impostor() -> Iterator[Impostor]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Impostor(listening)


Own = Callable[[Relay, msgspec.Struct], bytes]
OWN: dict[str, Own] = {
    "plain": lambda relay, message: framed(message),
    "a record": lambda relay, message: b"\x17\x03\x03" + len(framed(message)).to_bytes(2) + framed(message),
    "replayed": lambda relay, message: bytes(relay.heard[-200:]),
    "all again": lambda relay, message: bytes(relay.heard),
    "an alert": lambda relay, message: b"\x15\x03\x03\x00\x02\x01\x00",
    "a handshake": lambda relay, message: b"\x16\x03\x03\x00\x04\x18\x00\x00\x00",
}


@pytest.mark.parametrize("own", OWN)
def test_a_relay_submits_nothing(tmp_path: Path, own: str) -> None:
    with running(tmp_path, until_idle=False) as cluster, relayed(cluster.manager.address) as relay:
        client = reach(relay.address, FINGERPRINT, 5.0)
        client.set_timeout(LIMIT_S)
        said = f"HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CREDENTIALS.without_key.text}\r\n\r\n"
        client.write(f"GET /v1/jobs {said}".encode())
        assert client.read(1 << 16).startswith(b"HTTP/1.1 200 ")
        relay.say(OWN[own](relay, Submit((noting("theirs", tmp_path),))))
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while client.read(1 << 16):
                pass
        client.close()
        assert cluster.status().jobs == ()
        assert SECRET.encode() not in relay.heard


@pytest.mark.parametrize("own", OWN)
def test_a_relay_says_nothing_for_a_rank(tmp_path: Path, own: str) -> None:
    job = noting("a", tmp_path, 100.0)
    with (
        running(tmp_path, [job], until_idle=False) as cluster,
        relayed(cluster.manager.address) as relay,
    ):
        cluster.until(lambda s: s.jobs[0].state == "running")
        rank = as_rank(relay.address, "1-1")
        rank.set_timeout(LIMIT_S)
        rank.send(Join(0))
        rank.send(Compute(1, 0, 0))
        assert rank.receive(ToRank) == Go(1)
        relay.say(OWN[own](relay, Join(3)))
        with pytest.raises(TransportError):
            rank.receive(ToRank)
        rank.close()
        assert cluster.status().jobs[0].iteration == 0


@pytest.mark.parametrize("own", OWN)
def test_a_relay_says_nothing_for_a_worker(own: str) -> None:
    def work(worker: int) -> None:
        with relayed(job.job.address) as relay:
            theirs = connect(relay.address, job.job.credentials, Guest("worker", worker, ""), 5.0)
            wait_until(lambda: worker in server.core.peers)
            relay.say(OWN[own](relay, Farewell()))
            with pytest.raises(TransportError):
                theirs.receive(Welcome)
            theirs.close()
        wait_until(lambda: worker not in server.core.peers)
        assert not server.core.finished_workers
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        step(model, optimizer, *batch(worker, 0))
        model.hocket.detach()

    with served(Rule(mode="async")) as job:
        (server,) = job.servers
        job.on_workers(work)
    assert job.statuses == [0]


def test_commands_leave_whoever_has_another_certificate() -> None:
    with impostor() as theirs:
        with pytest.raises(HocketError, match=r"another certificate than the token's .* in between") as said:
            ask_manager(Contact(address=theirs.address, token=TOKEN), Submit((live_job("a"),)))
        assert "\n" not in str(said.value)
        wait_until(lambda: bool(theirs.heard))
        assert theirs.heard == [b""]


def test_ranks_leave_whoever_has_another_certificate(capfd: pytest.CaptureFixture[str]) -> None:
    with impostor() as theirs:
        gate = Gate(theirs.address, "1-1", 0, Credentials("a token of the attempt's own", FINGERPRINT))
        gate.compute(0, 0)  # it goes ahead
        gate.close()
        wait_until(lambda: bool(theirs.heard))
        assert set(theirs.heard) == {b""}
    said = capfd.readouterr().err
    assert "cannot be asked (it has another certificate than the token's" in said
    assert said.count("\n") == 1


def test_workers_leave_whoever_has_another_certificate() -> None:
    def work(_: int) -> None:
        with impostor() as theirs:
            elsewhere: Any = msgspec.structs.replace(job.job, address=theirs.address)
            mine, job.job = job.job, elsewhere
            model = made(Layers)
            with pytest.raises(HocketError, match="cannot join: it has another certificate"):
                job.train(0, model, torch.optim.SGD(model.parameters(), 0.1))
            wait_until(lambda: bool(theirs.heard))
            assert theirs.heard == [b""]
            job.job = mine
        model = made(Layers)
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(0, model, optimizer)
        step(model, optimizer, *batch(0, 0))
        model.hocket.detach()

    with served(Rule()) as job:
        job.on_workers(work)
    assert job.statuses == [0]


def test_leaders_leave_whoever_has_another_certificate() -> None:
    with impostor() as theirs, socket.create_server(("127.0.0.1", 0)) as unused:
        here = f"127.0.0.1:{unused.getsockname()[1]}"
        unused.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hocket.launch.traffic._MEET_S", 1.0)
            with pytest.raises(PeerLostError, match="lost rank 1"):
                Ring([Leader(here, "rank 0"), Leader(theirs.address, "rank 1")], 0, CREDENTIALS)
        wait_until(lambda: bool(theirs.heard))
        assert set(theirs.heard) == {b""}
