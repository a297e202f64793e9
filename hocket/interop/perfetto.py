"""Timelines as Chrome trace JSON, which ui.perfetto.dev opens, and back without loss.

A viewer reads ``ts`` and ``dur`` (microseconds); our reader takes the exact seconds from ``args``. Processes
and lanes (threads) have ids from 1 up, each used once, because viewers take thread 0 for an idle thread and a
thread numbered like its process for the main one.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hocket.document import convert_document, read_document, write_json
from hocket.errors import FormatError
from hocket.graph.result import ResultRow, check_row
from hocket.graph.timeline import Kind, Lane, MemoryPoint, Span, Timeline
from hocket.origin import origin

TIMELINE_FORMAT = "hocket.timeline/1"

_MICRO = 1e6
# The relative difference allowed between ts, dur and args: all are rounded once from the same seconds.
_RELATIVE_ROUNDING = 1e-9


class _MetadataArgs(msgspec.Struct, frozen=True):
    name: str | None = None
    sort_index: int | None = None


class _Metadata(msgspec.Struct, frozen=True, tag_field="ph", tag="M"):
    name: Literal["process_name", "thread_name", "process_sort_index", "thread_sort_index"]
    pid: int
    args: _MetadataArgs
    tid: int | None = None


class _SpanArgs(msgspec.Struct, frozen=True):
    start_s: float
    end_s: float


class _Complete(msgspec.Struct, frozen=True, tag_field="ph", tag="X"):
    name: str
    cat: Kind
    ts: float
    dur: Annotated[float, msgspec.Meta(ge=0)]
    pid: int
    tid: int
    args: _SpanArgs


class _TimelineFile(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["hocket.timeline/1"]
    title: str
    traceEvents: tuple[_Metadata | _Complete, ...]  # noqa: N815 - Chrome's name
    result: ResultRow | None = None
    memory: tuple[MemoryPoint, ...] = ()


def timeline_document(timeline: Timeline, result: ResultRow | None = None) -> dict[str, Any]:
    """The ``hocket.timeline/1`` document of ``timeline``, and the row of the run it shows, as plain data."""
    processes = list(dict.fromkeys(lane.process for lane in timeline.lanes))
    pids = {process: 1 + i for i, process in enumerate(processes)}
    first_tid = 1 + len(processes)
    events: list[dict[str, Any]] = []
    for process, pid in pids.items():
        events.append(_metadata("process_name", pid, {"name": process}))
        events.append(_metadata("process_sort_index", pid, {"sort_index": pid}))
    for i, lane in enumerate(timeline.lanes):
        pid, tid = pids[lane.process], first_tid + i
        events.append(_metadata("thread_name", pid, {"name": lane.name}, tid))
        events.append(_metadata("thread_sort_index", pid, {"sort_index": i}, tid))
    events.extend(
        {
            "ph": "X",
            "name": span.name,
            "cat": span.kind,
            "ts": span.start_s * _MICRO,
            "dur": (span.end_s - span.start_s) * _MICRO,
            "pid": pids[timeline.lanes[span.lane].process],
            "tid": first_tid + span.lane,
            "args": {"start_s": span.start_s, "end_s": span.end_s},
        }
        for span in timeline.spans
    )
    # Not as a counter among the events: readers that know spans alone would refuse it.
    memory = {"memory": msgspec.to_builtins(timeline.memory)} if timeline.memory else {}
    return {
        "format": TIMELINE_FORMAT,
        "title": timeline.title,
        "displayTimeUnit": "ms",
        "traceEvents": events,
        "result": None if result is None else msgspec.to_builtins(result),
        **memory,
    }


def _metadata(name: str, pid: int, args: dict[str, Any], tid: int | None = None) -> dict[str, Any]:
    event: dict[str, Any] = {"ph": "M", "name": name, "pid": pid, "args": args}
    if tid is not None:
        event["tid"] = tid
    return event


def load_timeline(path: str | Path) -> tuple[Timeline, ResultRow | None]:
    """Read a ``hocket.timeline/1`` file, as ``--timeline`` and :func:`hocket.save_timeline` write it.

    Parameters
    ----------
    path
        The file; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard input.

    Returns
    -------
    The timeline, and the row of its run (a :class:`hocket.ResultRow`) or None where the file has none.

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.

    Examples
    --------
    >>> import hocket
    >>> timeline, row = hocket.load_timeline("timeline.json")
    >>> row is None
    True
    """
    return timeline_from_document(read_document(path), str(path))


def save_timeline(timeline: Timeline, path: str | Path, result: ResultRow | None = None) -> None:
    """Write a timeline as ``hocket.timeline/1``, which ui.perfetto.dev opens, whole or not at all.

    Parameters
    ----------
    timeline
        The timeline, of a simulation or of training (``model.hocket.timeline``).
    path
        The file to write; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard output.
    result
        The row of its run, for ``hocket report``; None: there is none.

    Raises
    ------
    HocketError
        When the file cannot be written.

    Examples
    --------
    >>> import hocket
    >>> graph, network = hocket.load_step("step.json"), hocket.Network(num_workers=2)
    >>> plan = hocket.plan(graph, network, "ddp")
    >>> result = hocket.simulate(graph, plan, network, timeline=True)
    >>> hocket.save_timeline(result.timeline, "simulated.json", result.row)
    """
    write_json(timeline_document(timeline, result) | {"origin": msgspec.to_builtins(origin())}, path)


def timeline_from_document(document: Any, source: str) -> tuple[Timeline, ResultRow | None]:
    """The timeline of a ``hocket.timeline/1`` document that was already read from ``source``; see above."""
    if isinstance(document, dict) and document.get("format", TIMELINE_FORMAT) != TIMELINE_FORMAT:
        rule = f"'{document['format']}' is not '{TIMELINE_FORMAT}', which is needed here"
        raise FormatError(source, "format", rule)
    file = convert_document(document, _TimelineFile, source)
    lanes, indices = _read_lanes(file.traceEvents, source)
    spans = [
        _read_span(event, indices, source, f"traceEvents[{i}]")
        for i, event in enumerate(file.traceEvents)
        if isinstance(event, _Complete)
    ]
    spans.sort(key=lambda span: span.start_s)
    if file.result is not None:
        check_row(file.result, source, "result")
    _check_memory(file.memory, source)
    return Timeline(title=file.title, lanes=lanes, spans=tuple(spans), memory=file.memory), file.result


def _check_memory(points: tuple[MemoryPoint, ...], source: str) -> None:
    before_s = 0.0
    for i, point in enumerate(points):
        if point.at_s < before_s:
            rule = f"{point.at_s} s is before {before_s:g} s, and moments are in order"
            raise FormatError(source, f"memory[{i}]", rule)
        if point.held_bytes < 0:
            raise FormatError(source, f"memory[{i}]", f"{point.held_bytes} bytes are less than none")
        before_s = point.at_s


def _read_lanes(
    events: tuple[_Metadata | _Complete, ...], source: str
) -> tuple[tuple[Lane, ...], dict[tuple[int, int], int]]:
    """Lanes in the order of their names, and the index of each (pid, tid)."""
    processes: dict[int, str] = {}
    threads: dict[tuple[int, int], tuple[str, str]] = {}
    for i, event in enumerate(events):
        if not isinstance(event, _Metadata) or event.name.endswith("sort_index"):
            continue
        field = f"traceEvents[{i}]"
        if event.args.name is None:
            raise FormatError(source, f"{field}.args", f"'{event.name}' needs a name")
        if event.name == "process_name":
            if event.pid in processes:
                raise FormatError(source, f"{field}.pid", f"process {event.pid} is named twice")
            processes[event.pid] = event.args.name
        else:
            if event.tid is None:
                raise FormatError(source, f"{field}.tid", "'thread_name' needs a tid")
            if (event.pid, event.tid) in threads:
                raise FormatError(source, f"{field}.tid", f"thread {event.tid} is named twice")
            threads[event.pid, event.tid] = (event.args.name, field)
    for (pid, _), (_, field) in threads.items():
        if pid not in processes:
            raise FormatError(source, f"{field}.pid", f"process {pid} has no 'process_name' event")
    lanes = tuple(Lane(process=processes[pid], name=name) for (pid, _), (name, _) in threads.items())
    return lanes, {key: i for i, key in enumerate(threads)}


def _read_span(event: _Complete, lanes: dict[tuple[int, int], int], source: str, field: str) -> Span:
    lane = lanes.get((event.pid, event.tid))
    if lane is None:
        rule = f"thread {event.tid} of process {event.pid} has no 'thread_name' event"
        raise FormatError(source, f"{field}.tid", rule)
    start_s, end_s = event.args.start_s, event.args.end_s
    if end_s < start_s:
        raise FormatError(source, f"{field}.args.end_s", f"{end_s} is before start_s, {start_s}")
    tolerance = _RELATIVE_ROUNDING * max(abs(start_s), abs(end_s))
    for key, written, exact in (("ts", event.ts, start_s), ("dur", event.dur, end_s - start_s)):
        if not math.isclose(written / _MICRO, exact, rel_tol=_RELATIVE_ROUNDING, abs_tol=tolerance):
            rule = f"{written} microseconds are not the {exact} seconds in args; change both or neither"
            raise FormatError(source, f"{field}.{key}", rule)
    return Span(lane=lane, name=event.name, kind=event.cat, start_s=start_s, end_s=end_s)
