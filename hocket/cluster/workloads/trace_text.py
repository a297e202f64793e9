"""Text of traces, a line or a record at a time: a trace may be larger than a machine's memory."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from hocket.document import read_pieces
from hocket.errors import FormatError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER_BYTES = 1 << 20
_PIECE_CHARACTERS = 1 << 16
_LONGEST_TEXT = 1 << 16  # of a name, say: how far before the end of what was read a cut record may be wrong
_TAR_MAGIC = slice(257, 262)
_BLANK = " \t\r\n"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _Content(io.RawIOBase):
    """A file's decompressed bytes as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer as far as the next piece goes; 0 at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        view = memoryview(buffer).cast("B")
        taken = min(len(view), len(self._rest))
        view[:taken], self._rest = self._rest[:taken], self._rest[taken:]
        return taken


def open_text(path: Path) -> TextIO:
    """The text of a trace, ``.gz`` and ``.zst`` decompressed; ends of lines as they are.

    Raises
    ------
    FormatError
        Also while it is read; UnicodeDecodeError then for bytes that are no text.
    """
    content = io.BufferedReader(_Content(read_pieces(path)), _BUFFER_BYTES)
    if content.peek(_TAR_MAGIC.stop)[_TAR_MAGIC] == b"ustar":
        raise FormatError(str(path), "", "is a tar archive; unpack it (tar -xf) and give the file in it")
    return io.TextIOWrapper(content, encoding="utf-8-sig", newline="")


def read_records(path: Path) -> Iterator[Any]:
    """The plain data of each element of the JSON list in a file; only one of them is held at a time.

    Raises
    ------
    FormatError
        Naming the file, the number of the element and the rule.
    """
    source = str(path)
    try:
        with open_text(path) as file:
            yield from _Elements(file, source)
    except UnicodeDecodeError as error:
        raise FormatError(source, "", f"is not text in UTF-8: {error}") from None


class _Elements:
    """The elements of a JSON list, from as much of its text as the next one needs."""

    def __init__(self, file: TextIO, source: str) -> None:
        self._file = file
        self._source = source
        self._text = ""
        self._at = 0
        self._decoder = json.JSONDecoder(parse_constant=self._refuse_constant)
        self._number = 0

    def __iter__(self) -> Iterator[Any]:
        if self._sign() != "[":
            raise FormatError(self._source, "", "is not a list of records: expected `array`")
        self._at += 1
        more = self._sign() != "]"
        while more:
            yield self._element()
            self._number += 1
            sign = self._sign()
            if sign not in (",", "]"):
                self._refuse("is not JSON: no comma behind the record before it" if sign else "is cut")
            self._at += sign == ","
            more = sign == ","
        self._at += 1
        if self._sign():
            raise FormatError(self._source, "", "is not JSON: it goes on behind its list")

    def _element(self) -> Any:
        self._sign()
        size = _PIECE_CHARACTERS
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # One that is cut here is wrong near the end of what was read; text that is no JSON before it.
                if error.pos < len(self._text) - _LONGEST_TEXT or not self._read(size):
                    self._refuse(f"is not JSON: {error.msg}")
                size *= 2
                continue
            except RecursionError:
                self._refuse("is not JSON that we read: it is nested too deeply")
            if end == len(self._text) and self._read(size):
                continue  # a number may go on
            if _SURROGATE.search(self._text, self._at, end):
                self._check_text(value)
            self._at = end
            return value

    def _check_text(self, value: Any) -> None:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            self._refuse("holds a text that is none: half of a surrogate pair is alone")

    def _sign(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read(_PIECE_CHARACTERS):
                return ""

    def _read(self, size: int) -> bool:
        piece = self._file.read(size)
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)

    def _refuse(self, rule: str) -> NoReturn:
        raise FormatError(self._source, f"[{self._number}]", rule)

    def _refuse_constant(self, name: str) -> NoReturn:
        self._refuse(f"{name} is not a finite number")
