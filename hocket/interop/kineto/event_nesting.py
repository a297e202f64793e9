"""Relations between a trace's events: what encloses an operator or a call, and which streams wait."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any

from hocket.interop.kineto.events import HostSpan, RuntimeCall, StreamWait, whole
from hocket.interop.kineto.wire_events import WireArgs


def nest(host: list[HostSpan], calls: Iterable[RuntimeCall]) -> None:
    """Find for each operator and each call what encloses it on its thread."""
    threads: dict[Any, list[HostSpan | RuntimeCall]] = {}
    events: Iterable[HostSpan | RuntimeCall] = chain(host, calls)
    for event in events:
        threads.setdefault(event.thread, []).append(event)
    for own in threads.values():
        # Of those that begin together the longer one encloses the other, operators their calls. Two sorts, as
        # both keep the order of equals, and need no key of their own for each of millions of events.
        own.sort(key=attrgetter("end_us"), reverse=True)
        own.sort(key=attrgetter("start_us"))
        stack: list[HostSpan] = []
        for event in own:
            while stack and stack[-1].end_us <= event.start_us:
                stack.pop()
            enclosing = stack[-1] if stack else None
            if isinstance(event, HostSpan):
                event.parent = enclosing
                stack.append(event)
            else:
                event.host = enclosing
        own.clear()


def stream_waits(syncs: Iterable[WireArgs], calls: dict[int, RuntimeCall]) -> list[StreamWait]:
    """The waits of a stream whose two calls are both in the file."""
    found = []
    for sync in syncs:
        waiting, recorded = whole(sync.correlation), whole(sync.recorded_by)
        stream, on_stream = whole(sync.stream), whole(sync.on_stream)
        known = waiting in calls and recorded in calls and stream is not None and on_stream is not None
        if sync.sync_kind == "Stream Wait Event" and known:
            found.append(StreamWait(stream, calls[waiting], on_stream, calls[recorded]))  # type: ignore[arg-type,index]
    return found
