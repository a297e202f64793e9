"""Kineto traces (``torch.profiler``'s Chrome traces) as events: what ran on the GPU and who launched it.

Read are complete events (``"ph": "X"``) of a few categories, under their names since PyTorch 1.8:
operators and annotations of the host, calls of the GPU's runtime, kernels, copies and sets on the GPU,
and, where they were recorded, stream synchronizations. Times are microseconds. A GPU operation is tied to
its call by ``correlation``; an operator encloses what begins while it runs on its thread.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hocket.document import convert_document
from hocket.errors import FormatError
from hocket.interop.kineto.event_categories import READ
from hocket.interop.kineto.event_stream import EventStream
from hocket.interop.kineto.events import Trace
from hocket.interop.kineto.file_pieces import FilePieces
from hocket.interop.kineto.sorted_events import Beside, SortedEvents
from hocket.text import counted


def read_trace(path: str | Path, *, partial: bool = False, function_ids: bool = False) -> Trace:
    """Read a Kineto trace (``.json``, ``.gz`` or ``.zst``).

    function_ids : keep those of operators, for a join with an ExecutionTrace.

    partial : a file that ends before its end is read up to its last whole event; else it is refused.

    Raises
    ------
    FormatError
        Naming the file, the event and the rule.
    """
    source = str(path)
    stream, events = EventStream(FilePieces(path)), SortedEvents(source, function_ids=function_ids)
    with _without_collection():
        for first, batch in stream.batches():
            for i, event in enumerate(batch, first):
                if event.ph == "X" and event.cat in READ:
                    events.add(i, event)
    if stream.cut and not partial:
        whole_events, fix = counted(stream.count, "whole event"), "give --partial to read these"
        rule = f"is not JSON: it is cut behind {whole_events}; {fix}, or record it again"
        raise FormatError(source, "", rule)
    beside = convert_document(stream.beside, Beside, source, "")
    return events.trace(beside, stream)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Create millions of objects that form no circle without a search for circles among them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
