"""Writers and readers of each byte range of each storage: the source of a step's edges.

Operations are numbered in the order in which they ran. A range read depends on every write to it that has not
been covered by a later one (read after write); a range written depends on those writes (write after write)
and on the reads since (write after read). Ranges, rather than whole storages, keep tensors that live in one
flat buffer apart, such as a cuDNN LSTM's weights.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple


class Extent(NamedTuple):
    """Bytes [``begin``, ``end``) of the storage ``key``; a strided tensor's outermost bounds."""

    key: Hashable
    begin: int
    end: int

    def overlaps(self, begin: int, end: int) -> bool:
        """True if the extent shares a byte with [begin, end)."""
        return max(self.begin, begin) < min(self.end, end)


class _Access(NamedTuple):
    begin: int
    end: int
    operation: int


@dataclass
class _History:
    writes: list[_Access] = field(default_factory=list)
    reads: list[_Access] = field(default_factory=list)


class Memory:
    """The accesses so far, by storage."""

    def __init__(self) -> None:
        self._histories: dict[Hashable, _History] = {}

    def read(self, operation: int, extent: Extent) -> set[int]:
        """Note a read; return the operations that it must follow."""
        history = self._histories.setdefault(extent.key, _History())
        history.reads.append(_Access(extent.begin, extent.end, operation))
        return _overlapping(history.writes, extent) - {operation}

    def write(self, operation: int, extent: Extent) -> set[int]:
        """Note a write; return the operations that it must follow."""
        history = self._histories.setdefault(extent.key, _History())
        before = _overlapping(history.writes, extent) | _overlapping(history.reads, extent)
        history.writes = [*_uncovered(history.writes, extent), _Access(extent.begin, extent.end, operation)]
        history.reads = _uncovered(history.reads, extent)
        return before - {operation}

    def last_writer(self, extent: Extent) -> int | None:
        """The latest operation that wrote any byte of ``extent``; None if none did."""
        history = self._histories.get(extent.key)
        return max(_overlapping(history.writes, extent), default=None) if history else None


def _overlapping(accesses: list[_Access], extent: Extent) -> set[int]:
    return {access.operation for access in accesses if extent.overlaps(access.begin, access.end)}


def _uncovered(accesses: list[_Access], extent: Extent) -> list[_Access]:
    return [a for a in accesses if not (extent.begin <= a.begin and a.end <= extent.end)]
