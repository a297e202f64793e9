"""Traces beside this tree as inputs of readers: small ones whole, of real ones as much as is quickly read."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHARED = Path(__file__).parents[3] / "shared"
_MOST = 400  # events, nodes or messages of a real trace


def kineto_seeds() -> tuple[bytes, ...]:
    """The traces that misled, and the middle of each real one."""
    small = [gzip.decompress(path.read_bytes()) for path in sorted(SHARED.glob("cases/traces/*.json.gz"))]
    return (*small, *(_cut(document, "traceEvents") for document in _real("*kineto*")))


def execution_trace_seeds() -> tuple[bytes, ...]:
    """The beginning of each real ExecutionTrace."""
    return tuple(_cut(document, "nodes") for document in _real("*_et"))


def chakra_seeds() -> tuple[bytes, ...]:
    """The first messages of each Chakra trace."""
    return tuple(
        data[: _end_of_messages(data, _MOST)]
        for path in sorted(SHARED.glob("data/chakra*.tar.gz"))
        for data in _members(path)
    )


def _real(pattern: str) -> Iterator[dict[str, Any]]:
    for path in sorted(SHARED.glob(f"data/{pattern}.json.gz")):
        yield json.loads(gzip.decompress(path.read_bytes()))


def _cut(document: dict[str, Any], key: str) -> bytes:
    every = document[key]
    begin = max(0, (len(every) - _MOST) // 2) if key == "traceEvents" else 0
    return json.dumps({**document, key: every[begin : begin + _MOST]}).encode()


def _members(path: Path) -> Iterator[bytes]:
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            if file is not None:
                yield file.read()


def _end_of_messages(data: bytes, count: int) -> int:
    """Where so many messages end, each of which stands behind its length."""
    place = 0
    for _ in range(count):
        size = shift = 0
        while place < len(data):
            byte = data[place]
            place += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if place + size >= len(data):
            return len(data)
        place += size
    return place
