"""Outputs of the ranks of a folder: read part by part, and those of ended ranks removed when they are old."""

from __future__ import annotations

import codecs
import contextlib
import os
import time
from pathlib import Path
from typing import Annotated

import msgspec

MOST_PART_BYTES = 1 << 18
ENDED = "ended"
"""The folder beside the ranks' files that has what ended ranks left."""

_EARLIER, _NEW = ".earlier", ".out"


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """A place in a rank's output: in what was moved aside or, ``moved`` False, in what came since."""

    moved: bool = True
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0


class LogPart(msgspec.Struct, frozen=True):
    """A part of a rank's output, and where the next one begins; ``gap``: output before it is gone."""

    text: str
    next: LogPosition
    gap: bool = False


def log_part(folder: Path, key: str, position: LogPosition) -> LogPart | None:
    """A part of what a rank of ``folder`` printed, from ``position`` on; None where there is no such rank."""
    for place in (folder / key, folder / ENDED / key):
        if any(place.with_name(key + end).exists() for end in (_NEW, ".status", ".lock")):
            return _part(place, position)
    return None


def _part(place: Path, position: LogPosition) -> LogPart:
    gap = False
    if position.moved:
        if data := _read(place.with_name(place.name + _EARLIER), position.offset):
            return _decoded(data, position, gap)
        position = LogPosition(False, 0)
    out = place.with_name(place.name + _NEW)
    with contextlib.suppress(OSError):
        if out.stat().st_size < position.offset:  # it was emptied meanwhile
            gap, position = True, LogPosition(False, 0)
    return _decoded(_read(out, position.offset), position, gap)


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(MOST_PART_BYTES)
    except OSError:
        return b""


def _decoded(data: bytes, begin: LogPosition, gap: bool) -> LogPart:
    """The text of ``data``; a character of which a part is yet to come is left for the next time."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    used = len(data) - len(decoder.getstate()[0])
    return LogPart(text, LogPosition(begin.moved, begin.offset + used), gap)


def tidy(folder: Path, keep_s: float, most_bytes: float) -> None:
    """Remove what ended ranks left that is older than ``keep_s`` or, oldest first, beyond ``most_bytes``."""
    found = []
    for path in (folder / ENDED).glob("*"):
        with contextlib.suppress(OSError):
            seen = path.stat()
            found.append((seen.st_mtime, seen.st_size, path))
    kept_bytes, now_s = 0, time.time()
    for changed_s, size, path in sorted(found, reverse=True):
        kept_bytes += size
        if now_s - changed_s > keep_s or kept_bytes > most_bytes:
            with contextlib.suppress(OSError):
                os.unlink(path)
