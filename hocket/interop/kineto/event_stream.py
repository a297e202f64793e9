"""The events of a Chrome trace, piece by piece: a file is never in memory as a whole.

A trace is an object with a list ``traceEvents``, or that list alone. A text that begins where an event begins
and decodes as a list of events up to a ``},`` ends where an event ends, so most of a file is decoded in large
pieces. A piece that does not decode is tried in smaller ones, then mended, then event by event; an event
that cannot be read is kept as :class:`Unreadable`.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hocket.document import decode
from hocket.errors import FormatError
from hocket.interop.kineto.file_pieces import PIECE_BYTES, FilePieces
from hocket.interop.kineto.json_repair import mended
from hocket.interop.kineto.wire_events import WireEvent

_SMALL_BYTES = 64 << 10
_KEY_BYTES = 1 << 10  # of traceEvents, with spaces
_TAR, _TAR_PLACE = b"ustar", 257
_LARGEST_EVENT_BYTES = 256 << 20
_FAILURES = (msgspec.MsgspecError, UnicodeError, RecursionError)
_decode = msgspec.json.Decoder(list[WireEvent]).decode

_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_BEGINS = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|cat|name|pid|args)"\s*:)')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]"]', re.DOTALL)
_BARE = re.compile(rb"[^,\]{]++")
_SPACE = re.compile(rb"[\s,]*+")
_SAID = {
    key: re.compile(rb'"%s"\s*:\s*"((?:[^"\\]|\\.){0,200})' % key.encode()) for key in ("ph", "cat", "name")
}


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An event that is no event; of what it says of itself, what could be read.

    ``field`` and ``rule``: what is wrong with it, as far as that is known.
    """

    place: int
    field: str
    rule: str
    ph: str
    cat: str
    name: str


Batch = tuple[int, Sequence[WireEvent]]
"""Events that follow one another, and the place of the first."""


class EventStream:
    """The events of a file in batches; afterwards what stands beside them, and what went wrong.

    ``beside``: the other keys. ``count``: events, read or not. ``mended``: what was mended, how often.
    ``cut``: whether the file ends before its end.
    """

    def __init__(self, pieces: FilePieces) -> None:
        self.beside: dict[str, Any] = {}
        self.count = 0
        self.mended: Counter[str] = Counter()
        self.unreadable: list[Unreadable] = []
        self.cut = False
        self._source = pieces.source
        self._pieces = pieces
        self._iterator = iter(pieces)
        self._buffer = b""
        self._ended = self._fragment = False

    def batches(self) -> Iterator[Batch]:
        """Read the file.

        Raises
        ------
        FormatError
            When the file cannot be read or holds no list of events.
        """
        in_object = self._read_to_list()
        while True:
            self._skip()
            if self._buffer[:1] == b"]" or not self._buffer:
                break
            yield from self._next()
        closed = bool(self._buffer)
        # The list of a trace that is a list alone may stay open.
        self.cut = self._fragment or (in_object and not closed)
        if in_object and closed:
            self._read_behind()
        self.cut = self.cut or self._pieces.cut

    def _more(self) -> bool:
        """Add a piece to the buffer; False at the end of the file."""
        piece = b""
        while not piece and not self._ended:
            following = next(self._iterator, None)
            self._ended = following is None
            piece = following or b""
        self._buffer += piece
        return bool(piece)

    def _skip(self) -> None:
        """Skip what stands between events, up to something else."""
        while True:
            self._buffer = self._buffer[_SPACE.match(self._buffer).end() :]  # type: ignore[union-attr]
            if self._buffer or not self._more():
                return

    def _read_to_list(self) -> bool:
        """Read up to the first event; False for a trace that is the list alone."""
        while len(self._buffer) < len(codecs.BOM_UTF8) and self._more():
            pass
        self._buffer = self._buffer.removeprefix(codecs.BOM_UTF8)
        self._skip()
        if self._buffer[:1] == b"[":
            self._buffer = self._buffer[1:]
            return False
        since = 0
        while True:
            for found in _LIST.finditer(self._buffer, since):
                since = found.end()
                head = _object_of(self._buffer[:since] + b"]}", self.mended)
                if head is not None and head.pop("traceEvents", None) == []:
                    self.beside, self._buffer = head, self._buffer[since:]
                    return True
            since = max(since, len(self._buffer) - _KEY_BYTES)
            if len(self._buffer) > _LARGEST_EVENT_BYTES or not self._more():
                raise _without_list(self._buffer, self._source)

    def _read_behind(self) -> None:
        """Read the keys that follow the list."""
        while self._more():
            pass
        rest = b'{"":[' + self._buffer
        found = _object_of(rest, self.mended)
        if found is None:
            if not self._pieces.cut and rest.rstrip().endswith(b"}"):
                rule = "is not JSON behind its traceEvents; write the trace again"
                raise FormatError(self._source, "", rule)
            self.cut = True
            return
        if "traceEvents" in found:
            raise FormatError(self._source, "traceEvents", "is there twice; write the trace again")
        self.beside |= found

    def _next(self) -> Iterator[Batch]:
        """Decode what begins the buffer: a large piece, else small ones."""
        while len(self._buffer) < PIECE_BYTES and self._more():
            pass
        end = self._buffer.rfind(b"},") + 1
        if end and _BETWEEN.match(self._buffer, end - 1) is not None:
            with contextlib.suppress(*_FAILURES):
                batch = _decode(b"[" + self._buffer[:end] + b"]")
                self._buffer = self._buffer[end:]
                yield self._placed(batch)
                return
        yield from self._in_small_pieces()

    def _in_small_pieces(self) -> Iterator[Batch]:
        """Decode small pieces up to one that cannot be read as a whole, and that event by event."""
        buffer, at = self._buffer, 0
        while at < min(len(buffer), PIECE_BYTES):
            between = _BETWEEN.search(buffer, at + _SMALL_BYTES)
            end = len(buffer) if between is None else between.start() + 1
            batch = None if between is None else self._tried(buffer[at:end])
            if batch is None:
                self._buffer = buffer[at:]
                yield from self._one_by_one(end - at)
                return
            yield self._placed(batch)
            at = _SPACE.match(buffer, end).end()  # type: ignore[union-attr]
        self._buffer = buffer[at:]

    def _one_by_one(self, until: int) -> Iterator[Batch]:
        """Decode each event that begins in the first ``until`` bytes, or up to the end of the list."""
        at = 0
        batch: list[WireEvent] = []
        while at < until:
            at = _SPACE.match(self._buffer, at).end()  # type: ignore[union-attr]
            if self._buffer[at : at + 1] in (b"]", b""):
                break
            text = self._text_of_one(at)
            if text is None:
                self._buffer, self._fragment = self._buffer[:at], True
                break
            found = self._tried(text)
            if found is None:
                yield self._placed(batch)
                batch = []
                self.unreadable.append(_unreadable(self.count, text))
                self.count += 1
            else:
                batch += found
            at += len(text)
        self._buffer = self._buffer[at:]
        yield self._placed(batch)

    def _text_of_one(self, at: int) -> bytes | None:
        """The text of the event that begins at ``at``; None for what a cut left of one."""
        while True:
            end, begins = _end_of_value(self._buffer, at), _BEGINS.search(self._buffer, at)
            ahead = len(self._buffer) - at
            if end is not None or (begins is not None and ahead > PIECE_BYTES):
                break
            if ahead > _LARGEST_EVENT_BYTES:
                rule = f"is an event of more than {_LARGEST_EVENT_BYTES >> 20} MiB; write the trace again"
                raise FormatError(self._source, f"traceEvents[{self.count}]", rule)
            if not self._more():
                break
        following = None if begins is None else begins.start() + 1
        if end is not None and (following is None or end <= following):
            return self._buffer[at:end]
        if end is not None and self._tried(self._buffer[at:end]) is not None:
            return self._buffer[at:end]
        # A text in it does not end, or ends too early: it reaches to where the next one begins.
        return None if following is None else self._buffer[at:following]

    def _placed(self, batch: list[WireEvent]) -> Batch:
        first = self.count
        self.count += len(batch)
        return first, batch

    def _tried(self, text: bytes) -> list[WireEvent] | None:
        """The events in ``text``, mended where they have to be; None where that does not help."""
        listed = b"[" + text + b"]"
        with contextlib.suppress(*_FAILURES):
            return _decode(listed)
        whole, done = mended(listed)
        with contextlib.suppress(*_FAILURES):
            events = _decode(whole)
            self.mended.update(done)
            return events
        return None


def _end_of_value(buffer: bytes, at: int) -> int | None:
    """The place at which the value that begins at ``at`` ends; None where the buffer ends before it."""
    if buffer[at : at + 1] not in (b"{", b"[", b'"'):
        found = _BARE.match(buffer, at)
        return None if found is None or found.end() == len(buffer) else found.end()
    depth = 0
    for token in _TOKEN.finditer(buffer, at):
        if token[0] == b'"':
            return None  # a text that does not end
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
        if depth <= 0:
            return token.end()
    return None


def _unreadable(place: int, text: bytes) -> Unreadable:
    found = {key: pattern.search(text) for key, pattern in _SAID.items()}
    said = {key: "" if match is None else match[1].decode(errors="replace") for key, match in found.items()}
    rule, field = "is no event", ""
    try:
        msgspec.json.decode(mended(text)[0], type=WireEvent)
    except msgspec.ValidationError as error:
        rule, _, path = str(error).partition(" - at `$")
        rule, field = rule[:1].lower() + rule[1:], path.rstrip("`")
    except _FAILURES as error:
        rule = f"is not JSON: {error}"
    return Unreadable(place, field, rule, **said)


def _object_of(text: bytes, done: Counter[str]) -> dict[str, Any] | None:
    """The JSON object that ``text`` is, mended where it has to be; None where it is none."""
    found = None
    try:
        found = msgspec.json.decode(text)
    except _FAILURES:
        whole, how = mended(text)
        with contextlib.suppress(*_FAILURES):
            found = msgspec.json.decode(whole)
            done.update(how)
    return found if isinstance(found, dict) else None


class _EventsOfTrace(msgspec.Struct, frozen=True):
    traceEvents: list[Any]  # noqa: N815 - Chrome's name


def _without_list(text: bytes, source: str) -> FormatError:
    """The refusal of a file that has no events."""
    found = _object_of(text, Counter()) or {}
    if "nodes" in found and "schema" in found:
        return FormatError(source, "", "is a PyTorch ExecutionTrace; give it with --execution-trace")
    if text[_TAR_PLACE : _TAR_PLACE + len(_TAR)] == _TAR:
        return FormatError(source, "", "is a tar archive; unpack it, and give a trace in it")
    if b"\0" in text[:_KEY_BYTES] and text[:1] != b"{":
        rule = (
            "is binary, and torch.profiler writes JSON; of a Chakra trace hocket import chakra makes a step"
        )
        return FormatError(source, "", rule)
    try:
        decode(text, _EventsOfTrace, "", source)
    except FormatError as refused:
        return refused
    return FormatError(source, "traceEvents", "is not found where torch.profiler writes it")
