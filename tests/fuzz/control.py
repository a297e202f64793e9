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
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import msgspec
import torch

from hocket.launch import Rule, ServedJob
from hocket.launch.control import Connection, TransportError, decoded, framed
from hocket.runtime.ps.server.core import ServerCore
from hocket.runtime.ps.server.worker_connection import WorkerConnection
from hocket.runtime.ps.wire import training_messages as ps
from hocket.runtime.ps.wire.packing import pack
from hocket.runtime.ps.wire.transport import (
    BULK,
    FIRST_FRAME,
    HEADER_BYTES,
    STATE,
    Header,
    Kind,
    Transport,
    header_of,
)
from tests.fuzz.control_faults import damaged_message, shown, tried
from tests.fuzz.control_manager import managed
from tests.fuzz.control_messages import FRAME_LAYOUT, FROM_WORKER, SAID, SPEC
from tests.fuzz.mutations import damaged
from tests.tokens import TOKEN

_PER_MANAGER = 400
_LARGEST_BYTES = 1 << 24


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
                asyncio.run(managed(Path(folder), count, draw, found))
        done = 0
        while done < share:
            done += _Session(draw, found).run()
    return found


@contextlib.contextmanager
def _threads(found: Counter[str]) -> Iterator[None]:
    """What ends a thread within is a fault."""
    before = threading.excepthook
    threading.excepthook = lambda ended: found.update([shown(ended.exc_value)])
    try:
        yield
    finally:
        threading.excepthook = before


# Messages, as they are read.


def _said(number: int, draw: random.Random, found: Counter[str]) -> None:
    """A message that is decoded, a header, or what is packed of tensors."""
    if number % 8 == 6 and find_spec("grpc") is not None:
        tried(lambda: _came(draw), found)
        return
    if number % 8 == 7:
        data = damaged(Header(kind=Kind.PUSH, tag=3, length=32).to_bytes(), draw)
        tried(lambda: header_of(data[:HEADER_BYTES]), found)
        return
    type_, known = SAID[number % len(SAID)]
    data = damaged_message(draw.choice(known), draw)
    tried(lambda: decoded(data, type_), found)


def _came(draw: random.Random) -> None:
    """A call's message, to whoever has posted a buffer."""
    from hocket.runtime.ps.wire.grpc_transport import _Inbox

    inbox = _Inbox(timeout_s=0.001)
    inbox.expect(FIRST_FRAME, torch.zeros(8, dtype=torch.uint8))
    kind, tag = draw.choice([(Kind.PUSH, FIRST_FRAME), (Kind.VALUES, BULK), (Kind.END, 0)])
    payload = bytes(draw.choice([0, 8, 8, 9]))
    data = Header(kind=kind, tag=tag, length=len(payload)).to_bytes() + payload
    inbox._messages.put(damaged(data, draw) if draw.random() < 0.9 else data)
    inbox.receive()


# A server, after the proof of the token.


@dataclass
class _QuietTransport:
    """A transport on which nothing travels; ``posted``: buffers by tag."""

    posted: dict[int, torch.Tensor] = field(default_factory=dict)

    def expect(self, tag: int, buffer: torch.Tensor) -> None:
        self.posted[tag] = buffer

    def send(self, header: Header, payload: torch.Tensor | None = None) -> None:
        header.to_bytes()

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
        job = ServedJob(address="127.0.0.1:1", token=TOKEN, rule=rule, timeout_s=0.02)
        self._core = ServerCore(job, 0, "127.0.0.1:1")
        self._transport = _QuietTransport()
        self._peer = WorkerConnection(self._core, 0, cast(Connection, _QuietConnection()))
        self._peer._transport = cast(Transport, self._transport)
        self._core.peers[0] = self._peer

    def run(self) -> int:
        """How many messages were tried."""
        script: list[Any] = [
            ps.JoinRequest(SPEC),
            "values",
            ps.ResumeAfter(0),
            FRAME_LAYOUT,
            ps.PullRequest(),
            "push",
            FROM_WORKER[5],
        ]
        script += [
            ps.PullRequest(),
            "push",
            *FROM_WORKER[6:9],
            ps.Commit([{"lr": 0.1}], "0.5"),
            ps.Farewell(),
            "end",
        ]
        if self._draw.random() < 0.3:
            place = self._draw.randrange(len(script))
            script.insert(self._draw.randrange(len(script)), script.pop(place))
        odd = {self._draw.randrange(len(script)) for _ in range(2)}
        self._peer._start_thread("send", self._peer._send_tensors)
        count = 0
        for place, message in enumerate(script):
            count += place in odd
            before = sum(self._found.values())
            worked = tried(lambda m=message, o=place in odd: self._step(m, odd=o), self._found)  # type: ignore[misc]
            if worked is None or self._core.failure or sum(self._found.values()) > before:
                break
        failure = self._core.failure
        if failure.startswith("server") or "\n" in failure:
            self._found[f"the server ends: {failure[:100]}"] += 1
        self._core.handle_loss(self._peer, "it is over")
        tried(self._core.close, self._found)
        return max(1, count)

    def _step(self, message: Any, *, odd: bool) -> bool:
        if isinstance(message, str):
            if self._core.spec is None:
                return True  # nothing is received before
            self._tensors(message, odd=odd)
            return True
        data = damaged_message(message, self._draw) if odd else msgspec.json.encode(message)
        received = decoded(data, ps.FromWorker)
        if (
            isinstance(received, ps.JoinRequest)
            and sum(t.size_bytes for t in received.spec.parameters) > _LARGEST_BYTES
        ):
            return False  # a model of that size there may be
        if not isinstance(received, ps.JoinRequest | ps.RendezvousEntry) and self._core.spec is None:
            return False  # nobody hears it before
        self._peer._handle_message(received)
        if isinstance(received, ps.JoinRequest):
            framed(self._core.admit(self._peer, self._core.spec_of(self._peer)))
        return True

    def _tensors(self, what: str, *, odd: bool) -> None:
        draw, core, peer = self._draw, self._core, self._peer
        if what == "end":
            core.handle_end(peer, last_tensor=True)
        elif what == "values":
            zeros = {t.name: torch.zeros(t.shape) for t in (*SPEC.parameters, *SPEC.state)}
            data = bytes(pack(zeros, {}).numpy())
            payload = torch.frombuffer(
                bytearray((damaged(data, draw) if odd else data) or b"\0"), dtype=torch.uint8
            )
            core.handle_tensor(peer, Header(kind=Kind.VALUES, tag=BULK, length=len(payload)), payload)
        else:
            for tag, buffer in list(self._transport.posted.items()):
                kind = Kind.STATE if tag == STATE else Kind.PUSH
                header = Header(kind=kind, tag=tag, label=max(0, peer.label), length=len(buffer))
                if odd:
                    header = header_of(damaged(header.to_bytes(), draw)[:HEADER_BYTES])
                    buffer.copy_(torch.frombuffer(bytearray(draw.randbytes(len(buffer))), dtype=torch.uint8))
                del self._transport.posted[tag]
                if header.kind is not Kind.END:
                    core.handle_tensor(peer, header, buffer)


if __name__ == "__main__":
    came = faults(int(sys.argv[1]), int(sys.argv[2]))
    for fault, times in came.most_common():
        print(f"{times} x {fault}")
    print(f"{sys.argv[1]} control messages, {sum(came.values())} faults")
    sys.exit(1 if came else 0)
