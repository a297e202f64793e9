"""Records of a checkpoint's files, one behind the other, each with its length and its checksum.

The first is :class:`Snapshot`, all values as they were when the file began; every other one says what was
done since. A record's tensors are packed with it (:mod:`hocket.runtime.ps.wire.packing`).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import torch

from hocket.errors import HocketError
from hocket.runtime.ps.wire.model_spec import Spec
from hocket.runtime.ps.wire.packing import pack, table_of
from hocket.runtime.ps.wire.training_messages import Real, Settings
from hocket.runtime.ps.wire.transport import TransportError

_RECORD = struct.Struct("<4sIQ")
_MAGIC = b"HKC1"


class PushedStep(NamedTuple):
    """Step ``label`` of ``worker``, or, where workers share rounds, its part of that round."""

    worker: int
    label: int


class Update(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An update of ``parameters``; its tensors are their mean gradients, where a step used them."""

    parameters: list[int]
    pushes: list[PushedStep]
    settings: Settings
    scale: Real


class Buffers(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The model's buffers as worker 0's step ``label`` has left them, which are its tensors."""

    label: int


class AppliedUpdates(msgspec.Struct, kw_only=True):
    """``versions`` (p,): updates of each parameter; ``steps`` (w, p): how many steps of each worker count in
    them; ``buffers``: the step whose buffers are there.
    """

    versions: list[int]
    steps: list[list[int]]
    buffers: int = -1

    def note(self, record: Update | Buffers) -> None:
        """``record`` has been applied."""
        if isinstance(record, Buffers):
            self.buffers = record.label
            return
        for p in record.parameters:
            self.versions[p] += 1
            for worker, label in record.pushes:
                self.steps[worker][p] = label + 1


class CheckpointIdentity(NamedTuple):
    """The identity of a checkpoint file: its server, and of the job what must not change."""

    server: int
    servers: int
    workers: int
    mode: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="Whole"):
    """A generation's first record; its tensors are all values, and ``others`` the optimizer's other state."""

    about: CheckpointIdentity
    spec: Spec
    applied: AppliedUpdates
    others: dict[str, Any]


Record = Snapshot | Update | Buffers


def write_record(file: BinaryIO, record: Record, tensors: Mapping[str, torch.Tensor]) -> int:
    """Put ``record`` behind what is in ``file``; how many bytes it takes there."""
    payload = pack(tensors, msgspec.to_builtins(record)).numpy().data
    file.write(_RECORD.pack(_MAGIC, zlib.crc32(payload), len(payload)))
    file.write(payload)
    return _RECORD.size + len(payload)


def read_records(path: Path) -> Iterator[torch.Tensor]:
    """Each record that is whole, packed; what was being written when its server died is not."""
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size
        while left >= _RECORD.size:
            magic, checksum, length = _RECORD.unpack(file.read(_RECORD.size))
            left -= _RECORD.size + length
            if magic != _MAGIC or left < 0:
                return
            data = bytearray(length)
            file.readinto(data)
            if zlib.crc32(data) != checksum:
                return
            yield torch.frombuffer(data, dtype=torch.uint8)


def unpack_record(path: Path, data: torch.Tensor) -> Record:
    """A record of ``path`` without its tensors; HocketError where it is none."""
    try:
        record: Record = msgspec.convert(table_of(data).others, Record)
    except (msgspec.MsgspecError, TransportError) as error:
        raise HocketError(f"{path}: is damaged: {error}") from None
    return record
