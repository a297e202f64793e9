"""A file's content in pieces, decompressed as it is read: traces are larger than what should be in memory."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from hocket.errors import FormatError

_READ_BYTES = 1 << 20
PIECE_BYTES = 4 << 20
# More than any trace of some steps; a small compressed file may hold more than a disk does.
_LARGEST_BYTES = 64 << 30


class FilePieces:
    """The content of a file (``.gz`` and ``.zst`` decompressed; ``-``: standard input), once.

    ``cut``: whether a compressed file ended before its end, as far as it was read.
    """

    def __init__(self, path: str | Path) -> None:
        self.source = str(path)
        self.cut = False

    def __iter__(self) -> Iterator[bytes]:
        total = 0
        try:
            with _opened(self.source) as file:
                if not self.source.endswith((".gz", ".zst")):
                    yield from iter(lambda: file.read(PIECE_BYTES), b"")
                    return
                for piece in self._decompressed(file):
                    total += len(piece)
                    if total > _LARGEST_BYTES:
                        most = f"holds more than {_LARGEST_BYTES >> 20} MiB"
                        rule = f"{most}; decompress it, or record fewer steps"
                        raise FormatError(self.source, "", rule)
                    yield piece
        except OSError as error:
            raise FormatError(self.source, "", f"cannot be read: {error.strerror or error}") from None
        except ValueError as error:  # a null byte in a path
            raise FormatError(self.source, "", f"cannot be read: {error}") from None

    def _decompressed(self, file: BinaryIO) -> Iterator[bytes]:
        if self.source.endswith(".gz"):
            try:
                yield from self._gunzipped(file)
            except zlib.error as error:
                raise FormatError(self.source, "", f"is not a gzip file: {error}") from None
        else:
            try:
                reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
                yield from iter(lambda: reader.read(PIECE_BYTES), b"")
            except zstandard.ZstdError as error:
                raise FormatError(self.source, "", f"is not a zstd file: {error}") from None

    def _gunzipped(self, file: BinaryIO) -> Iterator[bytes]:
        """The members of a gzip file one after another; zeros behind the last are padding."""
        data, member = file.read(_READ_BYTES), zlib.decompressobj(wbits=31)
        if not data:
            raise FormatError(self.source, "", "is not a gzip file: it is empty")
        while data:
            yield member.decompress(data, PIECE_BYTES)
            data = member.unconsumed_tail
            if member.eof:
                data = member.unused_data.lstrip(b"\0")
                while not data and (more := file.read(_READ_BYTES)):
                    data = more.lstrip(b"\0")
                if not data:
                    return
                member = zlib.decompressobj(wbits=31)
            elif not data:
                data = file.read(_READ_BYTES)
        self.cut = True


def _opened(source: str) -> BinaryIO:
    return os.fdopen(os.dup(0), "rb") if source == "-" else Path(source).open("rb")
