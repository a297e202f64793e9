"""The transport on gloo: one two-rank group for each worker-server pair, receives posted ahead.

A send of gloo's ends only after its receive was posted, and a wait that runs out of time ends its group; that
is why each pair has one for itself. Its listening socket is on the address that it is given, and the ranks
find each other by what they tell over their control connection, so no store is open to others.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroupGloo

from hocket.runtime.ps.wire.rendezvous import Rendezvous
from hocket.runtime.ps.wire.transport import (
    BULK,
    HEADER_BYTES,
    HEADERS,
    LAST_FRAME,
    MOST_BYTES,
    Header,
    Kind,
    TransportError,
    header_of,
)

# A message leaves once its receiver has said that its buffer is posted. That word waits behind whatever else
# travels towards the sender, another worker's pushes for one, so small messages would wait for large ones.
_HEADERS_AHEAD = 64
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Read error", "Write error")
_TAGS, _LENGTHS = LAST_FRAME + 2, 2047  # their product is what gloo has tags for
_NOBODYS = _TAGS - 1
# Between steps a peer may be silent for as long as it likes; its control connection says whether it lives.
_FOREVER = timedelta(days=3650)
_AT_ONCE = timedelta(milliseconds=1)


class GlooTransport:
    """This process's end (``rank``: 0 for the server, 1 for the worker); listens on ``host`` alone.

    Raises
    ------
    TransportError
        When the other side does not connect.
    """

    def __init__(self, rendezvous: Rendezvous, rank: int, host: str, timeout_s: float) -> None:
        self._other = 1 - rank
        self._timeout = timedelta(seconds=timeout_s)
        self._timeout_s = timeout_s
        self._peer_ended = False
        self._posted_buffers: dict[int, tuple[Any, torch.Tensor]] = {}
        self._condition = threading.Condition()
        self._rendezvous = rendezvous  # gloo's own reference does not keep the Python side of it alive
        options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        # Whatever scripts ask of their own groups: both ends have to connect in the same way.
        options._devices = [ProcessGroupGloo.create_device(hostname=host, lazy_init=False)]
        options._timeout = self._timeout
        options._threads = 1
        try:
            self._gloo: Any = ProcessGroupGloo(rendezvous, rank, 2, options)
            self._headers = deque(self._post(HEADERS, _empty(HEADER_BYTES)) for _ in range(_HEADERS_AHEAD))
        except RuntimeError as error:
            raise TransportError(_line(error)) from None

    def expect(self, tag: int, buffer: torch.Tensor) -> None:
        """Post ``buffer`` for the next message on ``tag``; none may be posted there."""
        with self._condition:
            assert tag not in self._posted_buffers
            try:
                self._posted_buffers[tag] = self._post(tag, buffer)
            except RuntimeError as error:
                raise TransportError(_line(error)) from None
            self._condition.notify_all()

    def send(self, header: Header, payload: torch.Tensor | None = None) -> None:
        """Send one message, and wait until it is with the kernel."""
        try:
            works = [self._send_header(header)]
            if payload is not None:
                works.append(self._gloo.send([payload], self._other, _slot(header.tag, payload)))
            for work in works:
                work.wait(self._timeout)
        except RuntimeError as error:
            raise TransportError(_line(error)) from None

    def _send_header(self, header: Header) -> Any:
        data = _bytes(header.to_bytes())
        return self._gloo.send([data], self._other, _slot(HEADERS, data))

    def receive(self) -> tuple[Header, torch.Tensor | None]:
        """The next message."""
        try:
            work, data = self._headers.popleft()
            work.wait(_FOREVER)
            header = header_of(data.numpy().tobytes())
            self._headers.append(self._post(HEADERS, data))
            if header.kind is Kind.END:
                self._peer_ended = True
                return header, None
            work, buffer = self._take_posted(header)
            work.wait(self._timeout)
            return header, buffer
        except RuntimeError as error:
            raise TransportError(_line(error)) from None

    def close(self) -> None:
        """End the group, unless the peer has said farewell: then nobody waits."""
        if not self._peer_ended:
            # Aborting does nothing on gloo; a wait that runs out of time ends all others on its group.
            with contextlib.suppress(RuntimeError):
                self._post(_NOBODYS, _empty(1))[0].wait(_AT_ONCE)

    def _take_posted(self, header: Header) -> tuple[Any, torch.Tensor]:
        if header.tag == BULK:
            if header.length > MOST_BYTES:
                raise TransportError(f"a message of {header.length} bytes; at most {MOST_BYTES} are taken")
            return self._post(BULK, _empty(header.length))
        deadline_s = time.monotonic() + self._timeout_s
        with self._condition:
            while header.tag not in self._posted_buffers:
                if not self._condition.wait(deadline_s - time.monotonic()):
                    raise TransportError(f"nobody here expects message {header.tag}")
            posted = self._posted_buffers.pop(header.tag)
        if posted[1].numel() != header.length:
            raise TransportError(
                f"message {header.tag} has {header.length} bytes where {posted[1].numel()} are expected"
            )
        return posted

    def _post(self, tag: int, buffer: torch.Tensor) -> tuple[Any, torch.Tensor]:
        return self._gloo.recv([buffer], self._other, _slot(tag, buffer)), buffer


def _slot(tag: int, buffer: torch.Tensor) -> int:
    """The tag by which gloo looks for a message: a buffer of another length has another.

    Gloo ends the process whose buffer is too short; so it never finds it, and the header says why.
    """
    assert tag <= _NOBODYS
    return tag + buffer.numel() % _LENGTHS * _TAGS


def _empty(length: int) -> torch.Tensor:
    return torch.empty(length, dtype=torch.uint8)


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _line(error: BaseException) -> str:
    lines: Sequence[str] = str(error).splitlines() or [repr(error)]
    # A lost peer is said to be lost in the same words, whichever of its connections is seen to end first.
    return "its connection was closed" if any(sign in lines[0] for sign in _LOST) else lines[0]
