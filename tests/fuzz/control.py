"""Damaged control messages: what anybody can say to a manager, a gate, a server or gRPC's port.

A message is refused in one line (TransportError, HocketError), or served; :func:`faults` says what else came
of one. What is decoded goes on to whoever handles it, as after the proof of the token: a client that knows it
may be faulty. ``python -m tests.fuzz.control INPUTS SEED`` prints the faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import msgspec
import torch

from hocket.cluster.cluster import Cluster
from hocket.cluster.live.jobs import LiveJob
from hocket.cluster.live.manager import Manager
from hocket.cluster.live.messages import Answer, AskStatus, Cancel, Drain, FromClient, Submit
from hocket.cluster.live.nodes import Node
from hocket.errors import HocketError
from hocket.graph.plan import Plan, Pull, Push
from hocket.launch import Job, Rule
from hocket.launch.control import Connection, Hello, TransportError, Welcome, decoded, framed
from hocket.launch.gate import (
    Compute,
    Computed,
    FromRank,
    GivenUp,
    Go,
    Held,
    Join,
    ToRank,
    Transfer,
    Transferred,
)
from hocket.runtime.ps import messages as ps
from hocket.runtime.ps.exchange import Exchange
from hocket.runtime.ps.packing import packed
from hocket.runtime.ps.peer import Peer
from hocket.runtime.ps.spec import Spec, TensorSpec
from hocket.runtime.ps.transport import (
    BULK,
    FIRST_FRAME,
    HEADER_BYTES,
    STATE,
    Header,
    Kind,
    Transport,
    unpack,
)
from tests.fuzz.mutations import damaged

LONGEST_S = 2.0
TOKEN = "only for these inputs"
_PER_MANAGER = 400
_LARGEST_BYTES = 1 << 24

Refusal = (TransportError, HocketError)


def faults(inputs: int, seed: int) -> Counter[str]:
    """Try so many damaged messages; the faults, by what they are, and how many of each."""
    found: Counter[str] = Counter()
    share = max(1, inputs // 4)
    draw = random.Random(seed)
    with _threads(found), open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        for number in range(inputs - 2 * share):
            _said(number, draw, found)
        for first in range(0, share, _PER_MANAGER):
            with tempfile.TemporaryDirectory() as folder:
                count = min(_PER_MANAGER, share - first)
                asyncio.run(_managed(Path(folder), count, draw, found))
        done = 0
        while done < share:
            done += _Session(draw, found).run()
    return found


@contextlib.contextmanager
def _threads(found: Counter[str]) -> Iterator[None]:
    """What ends a thread within is a fault."""
    before = threading.excepthook
    threading.excepthook = lambda ended: found.update([_shown(ended.exc_value)])
    try:
        yield
    finally:
        threading.excepthook = before


def _tried(work: Callable[[], Any], found: Counter[str]) -> Any:
    """What ``work`` returns; None where it refuses, or has a fault."""
    began_s = time.process_time()
    try:
        return work()
    except Refusal as error:
        if "\n" in str(error):
            found[f"a refusal of several lines: {str(error)[:80]!r}"] += 1
    except Exception as error:
        found[_shown(error)] += 1
    finally:
        if time.process_time() - began_s > LONGEST_S:
            found["it takes too long"] += 1
    return None


def _shown(error: BaseException | None) -> str:
    if error is None:
        return "a thread ended"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "hocket/" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:100]!r}"


# Messages, as they are read.

JOB = LiveJob(
    **{"id": "a", "model": "m", "gpus": 2, "iterations": 4, "arrival_s": 0.0, "forward_s": 0.02},
    **{"backward_s": 0.02, "size_bytes": 1e5, "memory_bytes": 1.0, "command": ("true",), "folder": "."},
)
SPEC = Spec(
    parameters=(TensorSpec("a", (2, 3), "float32"), TensorSpec("b", (4,), "float32")),
    groups=(0, 0),
    optimizer="SGD",
    settings=[{"lr": 0.1, "momentum": 0.9}],
    state=(TensorSpec("running", (3,), "float32"),),
    buffers=1,
)
PLAN = Plan(
    policy="fifo",
    model="m",
    architecture="ps",
    pulls=(Pull(parameters=("a",), priority=0), Pull(parameters=("b",), priority=0)),
    pushes=(Push(parameters=("b",)), Push(parameters=("a",))),
    compute_order=None,
)
LAY = ps.Lay([[ps.Piece(0)], [ps.Piece(1)]], [[ps.Piece(1)], [ps.Piece(0)]], False, False, FIRST_FRAME)
FROM_CLIENT = [
    Submit((JOB,)),
    Submit((JOB, msgspec.structs.replace(JOB, id="traffic", command=None))),
    *(Cancel("a"), Drain("node0", True), Drain("node1", False), AskStatus()),
]
FROM_RANK = [Join(0), Compute(1, 0, 0), Computed(0, 1), Transfer(2, 0, 50_000, 100_000), Transferred(0)]
FROM_WORKER = [
    *(ps.Meet("0/1", b"x" * 30), ps.Begin(SPEC), ps.GoOn(0), LAY, ps.Want()),
    *(
        ps.Commit([{"lr": 0.1, "momentum": 0.9}], "1.0"),
        ps.AskNorms("2.0"),
        ps.AskState(),
        ps.Planned(PLAN),
        ps.Bye(),
    ),
]
OTHERS: list[tuple[Any, list[Any]]] = [
    (Hello, [Hello("worker", 0, "127.0.0.1:1", TOKEN), Hello("rank", 1, "1-1", TOKEN)]),
    (Welcome, [Welcome("")]),
    (ToRank, [Go(1), Held(), GivenUp()]),
    (Answer, [Answer(notes=("a: queued",))]),
    (ps.FromServer, [ps.Started(["127.0.0.1:1"], True, 0), ps.Norms(["1.0"]), ps.Failed("because")]),
]
SAID = [(FromClient, FROM_CLIENT), (FromRank, FROM_RANK), (ps.FromWorker, FROM_WORKER), *OTHERS]


def _damaged(message: Any, draw: random.Random) -> bytes:
    return damaged(msgspec.json.encode(message), draw)


def _said(number: int, draw: random.Random, found: Counter[str]) -> None:
    """A message that is decoded, a header, or what is packed of tensors."""
    if number % 8 == 6 and find_spec("grpc") is not None:
        _tried(lambda: _came(draw), found)
        return
    if number % 8 == 7:
        data = damaged(Header(kind=Kind.PUSH, tag=3, length=32).packed(), draw)
        _tried(lambda: unpack(data[:HEADER_BYTES]), found)
        return
    type_, known = SAID[number % len(SAID)]
    data = _damaged(draw.choice(known), draw)
    _tried(lambda: decoded(data, type_), found)


def _came(draw: random.Random) -> None:
    """A call's message, to whoever has posted a buffer."""
    from hocket.runtime.ps.grpc_calls import _Inbox

    inbox = _Inbox(timeout_s=0.001)
    inbox.expect(FIRST_FRAME, torch.zeros(8, dtype=torch.uint8))
    kind, tag = draw.choice([(Kind.PUSH, FIRST_FRAME), (Kind.VALUES, BULK), (Kind.END, 0)])
    payload = bytes(draw.choice([0, 8, 8, 9]))
    data = Header(kind=kind, tag=tag, length=len(payload)).packed() + payload
    inbox._come.put(damaged(data, draw) if draw.random() < 0.9 else data)
    inbox.receive()


# A manager, after the proof of the token.


class _QuietNode:
    """A node whose ranks run for ever and do nothing."""

    python = sys.executable
    shares_files = here = True
    address, machine = "127.0.0.1", "here"
    devices: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self._started: dict[str, int | None] = {}

    async def free_port(self) -> int:
        return 1

    async def start(self, key: str, *_: Any) -> None:
        self._started[key] = None

    async def conditions(self) -> dict[str, int | None]:
        return dict(self._started)

    async def stop(self, key: str) -> None:
        self._started[key] = 143

    async def output(self, key: str) -> str:
        return ""

    async def forget(self, key: str) -> None:
        del self._started[key]

    async def text(self, path: str) -> str:
        return ""


class _QuietLink:
    """A rank's link; what it is told is encoded, and goes nowhere."""

    def __init__(self, attempt: str, rank: int) -> None:
        self.attempt, self.rank = attempt, rank

    def send(self, message: msgspec.Struct) -> None:
        framed(message)

    def give_up(self) -> None: ...

    def close(self) -> None: ...


async def _managed(folder: Path, count: int, draw: random.Random, found: Counter[str]) -> None:
    nodes = cast(list[Node], [_QuietNode("node0"), _QuietNode("node1")])
    cluster = Cluster(num_servers=2, gpus_per_server=2, gpu_memory_bytes=10.0)
    manager = Manager(folder, cluster, nodes, placement="ls", policy="srsf-1", token=TOKEN)
    book, gatekeeper = manager._book, manager._gatekeeper
    try:
        await manager._commands.serve(Submit((msgspec.structs.replace(JOB, id="first", command=None),)))
        for _ in range(count):
            if draw.random() < 0.4:
                data = _damaged(draw.choice(FROM_CLIENT), draw)
                request = _tried(lambda data=data: decoded(data, FromClient), found)  # type: ignore[misc]
                if request is not None:
                    await _served(manager, request, found)
            else:
                data = _damaged(draw.choice(FROM_RANK), draw)
                message = _tried(lambda data=data: decoded(data, FromRank), found)  # type: ignore[misc]
                if message is not None and book.by_attempt:
                    attempt = draw.choice(list(book.by_attempt))
                    _tried(lambda m=message, a=attempt: _rank_says(manager, m, a, draw), found)  # type: ignore[misc]
            await asyncio.sleep(0)
            _tried(gatekeeper.hold, found)
            if book.failure is not None:
                found[f"the manager ends: {_shown(book.failure)}"] += 1
                return
    finally:
        await book.end_work()
        manager._database.close()


async def _served(manager: Manager, request: FromClient, found: Counter[str]) -> None:
    began_s = time.process_time()
    try:
        framed(await manager._commands.serve(request))
    except HocketError as error:
        if "\n" in str(error):
            found[f"a refusal of several lines: {str(error)[:80]!r}"] += 1
    except Exception as error:
        found[_shown(error)] += 1
    if time.process_time() - began_s > LONGEST_S:
        found["a command takes too long"] += 1


def _rank_says(manager: Manager, message: Any, attempt: str, draw: random.Random) -> None:
    run = manager._book.by_attempt[attempt]
    rank = draw.randrange(len(run.attempt.gpus))
    if isinstance(message, Join) or rank not in run.links:
        said = message if isinstance(message, Join) else Join(0)
        manager._gatekeeper.joined(cast(Any, _QuietLink(attempt, rank)), said)
    manager._gatekeeper.heard(run.links[rank], message)


# A server, after the proof of the token.


@dataclass
class _QuietTransport:
    """A transport on which nothing travels; ``posted``: buffers by tag."""

    posted: dict[int, torch.Tensor] = field(default_factory=dict)

    def expect(self, tag: int, buffer: torch.Tensor) -> None:
        self.posted[tag] = buffer

    def send(self, header: Header, payload: torch.Tensor | None = None) -> None:
        header.packed()

    def receive(self) -> tuple[Header, torch.Tensor | None]:
        raise TransportError("nothing comes")

    def close(self) -> None: ...


class _QuietConnection:
    """A worker's connection; what it is told is encoded, and goes nowhere."""

    local_host = "127.0.0.1"

    def send(self, message: msgspec.Struct) -> None:
        framed(message)

    def close(self) -> None: ...


class _Session:
    """A worker of a job of its own, some of whose messages are damaged, or come at another time."""

    def __init__(self, draw: random.Random, found: Counter[str]) -> None:
        self._draw, self._found = draw, found
        mode, barrier = draw.choice(
            [("sync", "step"), ("sync", "parameter"), ("async", "step"), ("inference", "step")]
        )
        rule = Rule(mode=cast(Any, mode), barrier=cast(Any, barrier))
        job = Job(address="127.0.0.1:1", token=TOKEN, rule=rule, timeout_s=0.02)
        self._exchange = Exchange(job, 0, "127.0.0.1:1")
        self._transport = _QuietTransport()
        self._peer = Peer(self._exchange, 0, cast(Connection, _QuietConnection()))
        self._peer._transport = cast(Transport, self._transport)
        self._exchange.peers[0] = self._peer

    def run(self) -> int:
        """How many messages were tried."""
        script: list[Any] = [ps.Begin(SPEC), "values", ps.GoOn(0), LAY, ps.Want(), "push", FROM_WORKER[5]]
        script += [ps.Want(), "push", *FROM_WORKER[6:9], ps.Commit([{"lr": 0.1}], "0.5"), ps.Bye(), "end"]
        if self._draw.random() < 0.3:
            place = self._draw.randrange(len(script))
            script.insert(self._draw.randrange(len(script)), script.pop(place))
        odd = {self._draw.randrange(len(script)) for _ in range(2)}
        self._peer._start("send", self._peer._send)
        tried = 0
        for place, message in enumerate(script):
            tried += place in odd
            before = sum(self._found.values())
            worked = _tried(lambda m=message, o=place in odd: self._step(m, odd=o), self._found)  # type: ignore[misc]
            if worked is None or self._exchange.failure or sum(self._found.values()) > before:
                break
        failure = self._exchange.failure
        if failure.startswith("server") or "\n" in failure:
            self._found[f"the server ends: {failure[:100]}"] += 1
        self._exchange.lost(self._peer, "it is over")
        _tried(self._exchange.close, self._found)
        return max(1, tried)

    def _step(self, message: Any, *, odd: bool) -> bool:
        if isinstance(message, str):
            if self._exchange.spec is None:
                return True  # nothing is received before
            self._tensors(message, odd=odd)
            return True
        data = _damaged(message, self._draw) if odd else msgspec.json.encode(message)
        heard = decoded(data, ps.FromWorker)
        if isinstance(heard, ps.Begin) and sum(t.size_bytes for t in heard.spec.parameters) > _LARGEST_BYTES:
            return False  # a model of that size there may be
        if not isinstance(heard, ps.Begin | ps.Meet) and self._exchange.spec is None:
            return False  # nobody hears it before
        self._peer._hear(heard)
        if isinstance(heard, ps.Begin):
            framed(self._exchange.admit(self._peer, self._exchange.spec_of(self._peer)))
        return True

    def _tensors(self, what: str, *, odd: bool) -> None:
        draw, exchange, peer = self._draw, self._exchange, self._peer
        if what == "end":
            exchange.ended(peer, data=True)
        elif what == "values":
            zeros = {t.name: torch.zeros(t.shape) for t in (*SPEC.parameters, *SPEC.state)}
            data = bytes(packed(zeros, {}).numpy())
            payload = torch.frombuffer(
                bytearray((damaged(data, draw) if odd else data) or b"\0"), dtype=torch.uint8
            )
            exchange.took(peer, Header(kind=Kind.VALUES, tag=BULK, length=len(payload)), payload)
        else:
            for tag, buffer in list(self._transport.posted.items()):
                kind = Kind.STATE if tag == STATE else Kind.PUSH
                header = Header(kind=kind, tag=tag, label=max(0, peer.label), length=len(buffer))
                if odd:
                    header = unpack(damaged(header.packed(), draw)[:HEADER_BYTES])
                    buffer.copy_(torch.frombuffer(bytearray(draw.randbytes(len(buffer))), dtype=torch.uint8))
                del self._transport.posted[tag]
                if header.kind is not Kind.END:
                    exchange.took(peer, header, buffer)


if __name__ == "__main__":
    came = faults(int(sys.argv[1]), int(sys.argv[2]))
    for fault, times in came.most_common():
        print(f"{times} x {fault}")
    print(f"{sys.argv[1]} control messages, {sum(came.values())} faults")
    sys.exit(1 if came else 0)
