"""Kineto traces (``torch.profiler``'s Chrome traces) as events: what ran on the GPU and who launched it.

Read are complete events (``"ph": "X"``) of a few categories, under their names since PyTorch 1.8:
operators and annotations of the host, calls of the GPU's runtime, kernels, copies and sets on the GPU,
and, where they were recorded, stream synchronizations. Times are microseconds. A GPU operation is tied to
its call by ``correlation``; an operator encloses what begins while it runs on its thread.
"""

from __future__ import annotations

import gc
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from hocket.document import convert_document
from hocket.errors import FormatError
from hocket.interop.kineto.engine_nodes import engine_spans
from hocket.interop.kineto.event_nesting import nest, stream_waits
from hocket.interop.kineto.event_stream import EventStream, Unreadable
from hocket.interop.kineto.events import (
    ACCUMULATE,
    NODE_PREFIX,
    OPTIMIZER_PREFIX,
    STEP_PREFIX,
    Gpu,
    HostSpan,
    RuntimeCall,
    Trace,
    Unlaunched,
    whole,
)
from hocket.interop.kineto.file_pieces import FilePieces
from hocket.interop.kineto.reading_report import reading_notes
from hocket.interop.kineto.wire_events import SharedValues, WireArgs, WireEvent
from hocket.text import counted

_GPU = frozenset(("kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"))
# Of other accelerators: read where they say what launched them, as operations of GPUs do.
_OTHER_DEVICES = {"mtia_ccp_events": "MTIA", "hpu_op": "HPU"}
_OF_DEVICE = {
    **{"xpu_runtime": "xpu", "xpu_driver": "xpu", "mtia_runtime": "mtia", "hpu_runtime": "hpu"},
    **{"privateuse1_runtime": "privateuse1", "privateuse1_driver": "privateuse1"},
}
_RUNTIME = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "Runtime", *_OF_DEVICE))
_HOST = frozenset(("cpu_op", "Operator", "user_annotation"))
_SYNC = frozenset(("cuda_sync",))
_COPIES = _GPU - {"kernel", "Kernel"}
_READ = _GPU | _RUNTIME | _HOST | _SYNC | frozenset(_OTHER_DEVICES)
_NEEDED = (NODE_PREFIX, ACCUMULATE, STEP_PREFIX, OPTIMIZER_PREFIX, "c10d::", "nccl:", "record_param_comms")
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

# The longest time and duration that are believed: 30,000 and 30 years.
_LATEST_US = 1e18
_LONGEST_US = 1e15
_MOST = 2**63
_NONE = -1  # no correlation
_UNKNOWN = RuntimeCall("", None, 0.0, 0.0, -1)


class _Distributed(msgspec.Struct, frozen=True):
    rank: int | None = None
    world_size: int | None = None


class _Device(msgspec.Struct, frozen=True):
    name: str = ""


class _Beside(msgspec.Struct, frozen=True):
    """Keys beside a trace's events."""

    distributedInfo: _Distributed = _Distributed()  # noqa: N815 - Kineto's name
    deviceProperties: list[_Device] = []  # noqa: N815
    batch_size: Any = None


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
    stream, events = EventStream(FilePieces(path)), _Events(source, function_ids=function_ids)
    with _without_collection():
        for first, batch in stream.batches():
            for i, event in enumerate(batch, first):
                if event.ph == "X" and event.cat in _READ:
                    events.add(i, event)
    if stream.cut and not partial:
        whole_events, fix = counted(stream.count, "whole event"), "give --partial to read these"
        rule = f"is not JSON: it is cut behind {whole_events}; {fix}, or record it again"
        raise FormatError(source, "", rule)
    beside = convert_document(stream.beside, _Beside, source, "")
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


class _Events:
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
        if _left_out(event):
            self._left_out[event.name] += 1
            return
        start_us, end_us = _times(event, self.source, i)
        wire, shared = event.args, self._shared
        name = shared.value(event.name)
        thread = shared.value((event.pid, event.tid))
        stream = whole(wire.queue if wire.stream is None else wire.stream)
        if event.cat in _OTHER_DEVICES and (stream is None or _correlation(wire) == _NONE):
            self._untied[event.cat] += 1
        elif event.cat in _GPU or event.cat in _OTHER_DEVICES:
            gpu = Gpu(name, -1 if stream is None else stream, start_us, end_us, shared.args(wire), _UNKNOWN)
            self._on_gpu.append(gpu)
            self._places.append(i)
            self._correlations.append(_NONE if stream is None else _correlation(wire))
            if whole(wire.graph_node):
                self._of_graphs.add(i)
        elif event.cat in _RUNTIME and not _LAUNCHES_NOTHING.match(name):
            correlation = _correlation(wire)
            if correlation != _NONE:
                self._runtimes[event.cat] += 1
                self._calls.setdefault(correlation, RuntimeCall(name, thread, start_us, end_us, correlation))
        elif event.cat in _RUNTIME:
            pass
        elif event.cat in _SYNC:
            self._syncs.append(wire)
        else:
            marks = name.startswith((STEP_PREFIX, OPTIMIZER_PREFIX))
            annotation = marks or event.cat == "user_annotation"
            function_id = whole(wire.function_id) if self._function_ids else None
            numbers = whole(wire.sequence), function_id
            self._host.append(
                HostSpan(name, thread, start_us, end_us, annotation, shared.args(wire), *numbers)
            )

    def trace(self, beside: _Beside, stream: EventStream) -> Trace:
        """The trace that the events make."""
        for event in stream.unreadable:
            if _needed(event):
                rule = f"{event.rule}, and a step needs it ('{event.name}'); record the trace again"
                raise FormatError(self.source, f"traceEvents[{event.place}]{event.field}", rule)
        if self._untied and not self._on_gpu:
            cat = self._untied.most_common(1)[0][0]
            rule = f"its {_OTHER_DEVICES[cat]} operations ({cat}) do not say which call launched them, and"
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
            notes=reading_notes(self.source, stream, self._left_out, _may_be_read),
            cut=stream.cut,
            unanswered=self._unanswered() if stream.cut else (),
        )

    def _device(self) -> str:
        """The kind of device whose runtime was called, for a trace that names none."""
        return _OF_DEVICE.get(max(self._runtimes, key=self._runtimes.__getitem__, default=""), "cuda")

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


def _left_out(event: WireEvent) -> bool:
    """Tell whether it cannot be read, and a step does not need it."""
    if event.cat in _COPIES:
        return event.args.correlation is None or event.args.bandwidth is None
    if event.cat in _GPU or (event.cat in _HOST and event.name.startswith(_NEEDED)):
        return False
    return any(not _sensible(*row) for row in _limits(event))


def _needed(event: Unreadable) -> bool:
    """Tell whether a step cannot be known without an event that cannot be read."""
    if event.ph not in ("X", "") or event.cat in _COPIES:
        return False
    return event.cat in _GPU or (event.cat in _HOST and event.name.startswith(_NEEDED))


def _may_be_read(event: Unreadable) -> bool:
    return not event.cat or event.cat in _READ


def _limits(event: WireEvent) -> tuple[tuple[float | None, float, float], ...]:
    """Time and duration with what is believed of them."""
    return (event.ts, -_LATEST_US, _LATEST_US), (event.dur, 0.0, _LONGEST_US)


def _sensible(value: float | None, least: float, most: float) -> bool:
    return value is not None and least <= value <= most


def _times(event: WireEvent, source: str, i: int) -> tuple[float, float]:
    for key, (value, least, most) in zip(("ts", "dur"), _limits(event), strict=True):
        if not _sensible(value, least, most):
            rule = f"{value} is not a number of microseconds from {least:g} to {most:g} ('{event.name}')"
            raise FormatError(source, f"traceEvents[{i}].{key}", f"{rule}; record the trace again")
    assert event.ts is not None
    assert event.dur is not None
    return event.ts, event.ts + event.dur
