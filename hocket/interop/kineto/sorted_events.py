"""The events of a trace, sorted as they come, and what ties them: launches, nesting, waits of streams."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from hocket.errors import FormatError
from hocket.interop.kineto.engine_nodes import engine_spans
from hocket.interop.kineto.event_categories import (
    GPU,
    OF_DEVICE,
    OTHER_DEVICES,
    RUNTIME,
    SYNC,
    left_out,
    may_be_read,
    needed,
    times,
)
from hocket.interop.kineto.event_nesting import nest, stream_waits
from hocket.interop.kineto.event_stream import EventStream
from hocket.interop.kineto.events import (
    OPTIMIZER_PREFIX,
    STEP_PREFIX,
    Gpu,
    HostSpan,
    RuntimeCall,
    Trace,
    Unlaunched,
    whole,
)
from hocket.interop.kineto.reading_report import reading_notes
from hocket.interop.kineto.wire_events import SharedValues, WireArgs, WireEvent

_LAUNCHES = re.compile("Launch|Memcpy|Memset")
# A third of all calls: what only asks or sets up.
_LAUNCHES_NOTHING = re.compile(
    "_*(cuda|hip|cu)(Get|Set|Peek|Push|Pop|Func|Occupancy|Pointer|Device(Get|Can)|Ctx(Get|Set)|ThreadExchange|Driver"
    "|Stream(Get|Is|Create|Query)|Event(Query|Create|Destroy|Elapsed)|(Malloc|Free|HostAlloc)$)"
)
_HOST_WAITS = (
    *("StreamSynchronize", "DeviceSynchronize", "EventSynchronize"),
    *("QueueFinish", "EventWait", "QueueSynchronize", "HostSynchronize"),  # Intel's
)

_MOST = 2**63
_NONE = -1  # no correlation
_UNKNOWN = RuntimeCall("", None, 0.0, 0.0, -1)


class _Distributed(msgspec.Struct, frozen=True):
    rank: int | None = None
    world_size: int | None = None


class _Device(msgspec.Struct, frozen=True):
    name: str = ""


class Beside(msgspec.Struct, frozen=True):
    """Keys beside a trace's events."""

    distributedInfo: _Distributed = _Distributed()  # noqa: N815 - Kineto's name
    deviceProperties: list[_Device] = []  # noqa: N815
    batch_size: Any = None


class SortedEvents:
    """The events of a trace, sorted as they come."""

    def __init__(self, source: str, *, function_ids: bool) -> None:
        self.source = source
        self._function_ids = function_ids
        self._left_out: Counter[str] = Counter()
        self._shared = SharedValues()
        self._host: list[HostSpan] = []
        self._calls: dict[int, RuntimeCall] = {}
        self._on_gpu: list[Gpu] = []
        # Of each operation on the GPU, where it stands and its call's correlation.
        self._places, self._correlations = array("q"), array("q")
        self._of_graphs: set[int] = set()
        self._syncs: list[WireArgs] = []
        # Of other accelerators' work what does not say what launched it, and the names of runtimes.
        self._untied: Counter[str] = Counter()
        self._runtimes: Counter[str] = Counter()

    def add(self, i: int, event: WireEvent) -> None:
        """Keep an event of a category that is read, or count it as left out."""
        if left_out(event):
            self._left_out[event.name] += 1
            return
        start_us, end_us = times(event, self.source, i)
        wire, shared = event.args, self._shared
        name = shared.value(event.name)
        thread = shared.value((event.pid, event.tid))
        stream = whole(wire.queue if wire.stream is None else wire.stream)
        if event.cat in OTHER_DEVICES and (stream is None or _correlation(wire) == _NONE):
            self._untied[event.cat] += 1
        elif event.cat in GPU or event.cat in OTHER_DEVICES:
            gpu = Gpu(name, -1 if stream is None else stream, start_us, end_us, shared.args(wire), _UNKNOWN)
            self._on_gpu.append(gpu)
            self._places.append(i)
            self._correlations.append(_NONE if stream is None else _correlation(wire))
            if whole(wire.graph_node):
                self._of_graphs.add(i)
        elif event.cat in RUNTIME and not _LAUNCHES_NOTHING.match(name):
            correlation = _correlation(wire)
            if correlation != _NONE:
                self._runtimes[event.cat] += 1
                self._calls.setdefault(correlation, RuntimeCall(name, thread, start_us, end_us, correlation))
        elif event.cat in RUNTIME:
            pass
        elif event.cat in SYNC:
            self._syncs.append(wire)
        else:
            marks = name.startswith((STEP_PREFIX, OPTIMIZER_PREFIX))
            annotation = marks or event.cat == "user_annotation"
            function_id = whole(wire.function_id) if self._function_ids else None
            numbers = whole(wire.sequence), function_id
            self._host.append(
                HostSpan(name, thread, start_us, end_us, annotation, shared.args(wire), *numbers)
            )

    def trace(self, beside: Beside, stream: EventStream) -> Trace:
        """The trace that the events make."""
        for event in stream.unreadable:
            if needed(event):
                rule = f"{event.rule}, and a step needs it ('{event.name}'); record the trace again"
                raise FormatError(self.source, f"traceEvents[{event.place}]{event.field}", rule)
        if self._untied and not self._on_gpu:
            cat = self._untied.most_common(1)[0][0]
            rule = f"its {OTHER_DEVICES[cat]} operations ({cat}) do not say which call launched them, and"
            raise FormatError(
                self.source, "traceEvents", f"{rule} steps need that; record on CUDA, ROCm or XPU"
            )
        calls = self._calls
        nest(self._host, calls.values())
        if spans := engine_spans(self._host, calls.values()):
            self._host = [*spans, *self._host]
            nest(self._host, calls.values())
        gpu, unlaunched = [], []
        for i, operation, correlation in self._ran():
            call = calls.get(correlation)
            if call is None:
                of_graph = i in self._of_graphs
                unlaunched.append(_unlaunched(i, operation, correlation, of_graph=of_graph))
            else:
                operation.call = call
                gpu.append(operation)
        return Trace(
            source=self.source,
            rank=beside.distributedInfo.rank,
            world_size=beside.distributedInfo.world_size,
            device=next((device.name for device in beside.deviceProperties if device.name), self._device()),
            batch_size=beside.batch_size,
            host=sorted(self._host, key=lambda event: event.start_us),
            gpu=sorted(gpu, key=lambda event: (event.start_us, event.end_us)),
            waits=sorted(
                (call for call in calls.values() if call.name.endswith(_HOST_WAITS)),
                key=lambda call: call.end_us,
            ),
            stream_waits=stream_waits(self._syncs, calls),
            unlaunched=unlaunched,
            notes=reading_notes(self.source, stream, self._left_out, may_be_read),
            cut=stream.cut,
            unanswered=self._unanswered() if stream.cut else (),
        )

    def _device(self) -> str:
        """The kind of device whose runtime was called, for a trace that names none."""
        return OF_DEVICE.get(max(self._runtimes, key=self._runtimes.__getitem__, default=""), "cuda")

    def _ran(self) -> Iterable[tuple[int, Gpu, int]]:
        return zip(self._places, self._on_gpu, self._correlations, strict=True)

    def _unanswered(self) -> list[float]:
        ran = set(self._correlations)
        launches = (call for call in self._calls.values() if _LAUNCHES.search(call.name))
        return [call.start_us for call in launches if call.correlation not in ran]


def _unlaunched(place: int, of: Gpu, correlation: int, *, of_graph: bool) -> Unlaunched:
    stream = None if of.stream < 0 else of.stream
    return Unlaunched(of.name, place, stream, of.start_us, of.end_us, correlation != _NONE, of_graph)


def _correlation(args: WireArgs) -> int:
    """The number that ties an operation to its call; nothing that is in no 64 bits."""
    found = whole(args.correlation)
    return found if found is not None and abs(found) < _MOST else _NONE
