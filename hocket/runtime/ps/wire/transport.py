"""Transports: the carriers of tensors between one worker and one server.

A message is a header of fixed size and, on a tag of its own, a payload whose receiver has posted a buffer of
exactly that size: so a payload never waits for its receiver, and nothing of another length gets in.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Protocol

import torch

from hocket.launch.control import TransportError as TransportError

_HEADER = struct.Struct("<4sBxxxIIQQ")
_MAGIC = b"HKT1"

HEADER_BYTES = _HEADER.size
MOST_BYTES = 1 << 37
HEADERS, BULK, STATE, FIRST_FRAME, LAST_FRAME = 0, 1, 2, 3, (1 << 20) - 2
"""Tags: of headers, of messages of any length, of the model's buffers; the last two are those of frames."""


class Kind(enum.IntEnum):
    """The kind of a message."""

    END = 0  # the last message
    PULL = 1
    PUSH = 2
    STATE = 3
    VALUES = 4
    OPTIMIZER = 5


@dataclass(frozen=True, kw_only=True)
class Header:
    """``label``: the step on this server; ``rank``: the planned place; ``length``: the payload's bytes."""

    kind: Kind
    tag: int = 0
    rank: int = 0
    label: int = 0
    length: int = 0

    def to_bytes(self) -> bytes:
        """The header on the wire."""
        return _HEADER.pack(_MAGIC, self.kind, self.tag, self.rank, self.label, self.length)


def header_of(data: bytes) -> Header:
    """Read a header, or raise TransportError where it is none."""
    if len(data) != HEADER_BYTES:
        raise TransportError(f"a header of {len(data)} bytes; it has {HEADER_BYTES}")
    magic, kind, tag, rank, label, length = _HEADER.unpack(data)
    if magic != _MAGIC or kind not in list(Kind):
        raise TransportError(f"what came is no message of Hocket's (it begins with {data[:5]!r})")
    return Header(kind=Kind(kind), tag=tag, rank=rank, label=label, length=length)


class Transport(Protocol):
    """One end of a worker-server pair; no wait takes longer than the job's timeout, but for the next message.

    One thread sends and one receives. Every method raises :class:`TransportError` once the peer is lost.
    """

    def expect(self, tag: int, buffer: torch.Tensor) -> None:
        """Post ``buffer`` (uint8, flat) for the next message on ``tag``."""

    def send(self, header: Header, payload: torch.Tensor | None = None) -> None:
        """Send a message; returns when the payload (uint8, flat) may be written again."""

    def receive(self) -> tuple[Header, torch.Tensor | None]:
        """The next message, its payload in the buffer that was posted for it."""

    def close(self) -> None:
        """No message is going to come or go; who waits for one has an error, or sees the peer's end."""
