"""The report on the reading of a trace: what was mended, left out or unreadable, and if it was needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hocket.interop.kineto.event_stream import EventStream, Unreadable
from hocket.interop.kineto.json_repair import mended_in_words
from hocket.text import counted

_NAMES_SHOWN = 3
_COMPLETE = ("X", "")  # nothing: it could not be read


def reading_notes(
    source: str, stream: EventStream, left_out: Counter[str], read: Callable[[Unreadable], bool]
) -> list[str]:
    """Notes on a file that was read; ``read``: whether an event of that category is read at all."""
    notes = []
    if stream.cut:
        notes.append(f"{source}: is cut: read up to its last whole event, of {stream.count:,}")
    if mended := mended_in_words(stream.mended):
        notes.append(f"{source}: mended {mended}")
    if left_out:
        events = counted(left_out.total(), "event")
        notes.append(
            f"{source}: left out {events} whose time or correlation makes no sense: {_some(list(left_out))}"
        )
    if stream.unreadable:
        of = f"{source}: {len(stream.unreadable):,} of {counted(stream.count, 'event')} unreadable"
        doubtful = [event for event in stream.unreadable if event.ph in _COMPLETE and read(event)]
        names = _some([event.name or f"traceEvents[{event.place}]" for event in doubtful])
        used = f"{len(doubtful)} may have been used: {names}" if doubtful else "none of them used"
        notes.append(f"{of}, {used}")
    return notes


def _some(names: list[str]) -> str:
    names = sorted(set(names))
    return ", ".join(names[:_NAMES_SHOWN]) + ", ..." * (len(names) > _NAMES_SHOWN)
