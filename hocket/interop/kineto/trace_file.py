"""Kineto traces (``torch.profiler``'s Chrome traces) as events: what ran on the GPU and who launched it.

Read are complete events (``"ph": "X"``) of a few categories, under their names since PyTorch 1.8:
operators and annotations of the host, calls of the GPU's runtime, kernels, copies and sets on the GPU,
and, where they were recorded, stream synchronizations. Times are microseconds. A GPU operation is tied to
its call by ``correlation``; an operator encloses what begins while it runs on its thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from hocket.document import decode, read_bytes
from hocket.errors import FormatError
from hocket.interop.kineto.events import (
    ACCUMULATE,
    NODE_PREFIX,
    OPTIMIZER_PREFIX,
    STEP_PREFIX,
    Args,
    Gpu,
    HostSpan,
    RuntimeCall,
    StreamWait,
    Trace,
    Unlaunched,
    whole,
)
from hocket.interop.kineto.json_repair import mended
from hocket.text import counted

_GPU = frozenset(("kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"))
_RUNTIME = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "Runtime"))
_HOST = frozenset(("cpu_op", "Operator", "user_annotation"))
_SYNC = frozenset(("cuda_sync",))
_COPIES = _GPU - {"kernel", "Kernel"}
_READ = _GPU | _RUNTIME | _HOST | _SYNC
_NEEDED = (NODE_PREFIX, ACCUMULATE, STEP_PREFIX, OPTIMIZER_PREFIX, "c10d::", "nccl:", "record_param_comms")
_NAMES_SHOWN = 3
_HOST_WAITS = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize")

# The longest time and duration that are believed: 30,000 and 30 years.
_LATEST_US = 1e18
_LONGEST_US = 1e15


class _Event(msgspec.Struct, frozen=True, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Args = Args()


class _Distributed(msgspec.Struct, frozen=True):
    rank: int | None = None
    world_size: int | None = None


class _Device(msgspec.Struct, frozen=True):
    name: str = ""


class _KinetoFile(msgspec.Struct, frozen=True):
    traceEvents: list[_Event]  # noqa: N815 - Chrome's name
    distributedInfo: _Distributed = _Distributed()  # noqa: N815
    deviceProperties: list[_Device] = []  # noqa: N815
    batch_size: Any = None


def read_trace(path: str | Path) -> Trace:
    """Read a Kineto trace (``.json`` or ``.json.gz``).

    Raises
    ------
    FormatError
        Naming the file, the event and the rule.
    """
    source = str(path)
    data = read_bytes(path)
    try:
        return _trace(decode(data, _KinetoFile, "", source), source, [])
    except FormatError as refused:
        whole, done = mended(data)
        if not done:
            raise
        try:
            return _trace(
                decode(whole, _KinetoFile, "", source), source, [f"{source}: mended {', '.join(done)}"]
            )
        except FormatError:
            raise refused from None


def _trace(file: _KinetoFile, source: str, notes: list[str]) -> Trace:
    host: list[HostSpan] = []
    calls: dict[int, RuntimeCall] = {}
    on_gpu: list[tuple[int, _Event, float, float]] = []
    syncs: list[Args] = []
    left_out: Counter[str] = Counter()
    for i, event in enumerate(file.traceEvents):
        if event.ph != "X" or event.cat not in _READ:
            continue
        if _left_out(event):
            left_out[event.name] += 1
            continue
        start_us, end_us = _times(event, source, i)
        thread = (event.pid, event.tid)
        if event.cat in _GPU:
            on_gpu.append((i, event, start_us, end_us))
        elif event.cat in _RUNTIME:
            correlation = whole(event.args.correlation)
            if correlation is not None:
                calls.setdefault(correlation, RuntimeCall(event.name, thread, start_us, end_us, correlation))
        elif event.cat in _SYNC:
            syncs.append(event.args)
        else:
            marks = event.name.startswith((STEP_PREFIX, OPTIMIZER_PREFIX))
            annotation = marks or event.cat == "user_annotation"
            host.append(HostSpan(event.name, thread, start_us, end_us, annotation, event.args))
    _nest(host, calls.values())
    gpu, unlaunched = [], []
    for i, event, start_us, end_us in on_gpu:
        args = event.args
        stream = whole(args.queue if args.stream is None else args.stream)
        correlation = whole(args.correlation)
        if stream is None or correlation is None:
            rule = f"'{event.name}' needs stream and correlation, whole numbers; record the trace again"
            raise FormatError(source, f"traceEvents[{i}].args", rule)
        call = calls.get(correlation)
        if call is None:
            unlaunched.append(Unlaunched(i, stream, start_us, end_us))
        else:
            gpu.append(Gpu(event.name, stream, start_us, end_us, args, call))
    if left_out:
        names = ", ".join(sorted(left_out)[:_NAMES_SHOWN]) + ", ..." * (len(left_out) > _NAMES_SHOWN)
        events = counted(left_out.total(), "event")
        notes.append(f"{source}: left out {events} whose time or correlation makes no sense: {names}")
    return Trace(
        source=source,
        rank=file.distributedInfo.rank,
        world_size=file.distributedInfo.world_size,
        device=next((device.name for device in file.deviceProperties if device.name), "cuda"),
        batch_size=file.batch_size,
        host=sorted(host, key=lambda event: event.start_us),
        gpu=sorted(gpu, key=lambda event: (event.start_us, event.end_us)),
        waits=sorted(
            (call for call in calls.values() if call.name.endswith(_HOST_WAITS)),
            key=lambda call: call.end_us,
        ),
        stream_waits=_stream_waits(syncs, calls),
        unlaunched=unlaunched,
        notes=notes,
    )


def _left_out(event: _Event) -> bool:
    """Tell whether it cannot be read, and a step does not need it."""
    if event.cat in _COPIES:
        return event.args.correlation is None or event.args.bandwidth is None
    if event.cat in _GPU or event.cat not in _HOST or event.name.startswith(_NEEDED):
        return False
    return any(not _sensible(*row) for row in _limits(event))


def _limits(event: _Event) -> tuple[tuple[float | None, float, float], ...]:
    """Time and duration with what is believed of them."""
    return (event.ts, -_LATEST_US, _LATEST_US), (event.dur, 0.0, _LONGEST_US)


def _sensible(value: float | None, least: float, most: float) -> bool:
    return value is not None and least <= value <= most


def _times(event: _Event, source: str, i: int) -> tuple[float, float]:
    for key, (value, least, most) in zip(("ts", "dur"), _limits(event), strict=True):
        if not _sensible(value, least, most):
            rule = f"{value} is not a number of microseconds from {least:g} to {most:g} ('{event.name}')"
            raise FormatError(source, f"traceEvents[{i}].{key}", f"{rule}; record the trace again")
    assert event.ts is not None
    assert event.dur is not None
    return event.ts, event.ts + event.dur


def _nest(host: list[HostSpan], calls: Iterable[RuntimeCall]) -> None:
    """Find for each operator and each call what encloses it on its thread."""
    threads: dict[Any, list[tuple[float, float, int, HostSpan | RuntimeCall]]] = {}
    events: list[HostSpan | RuntimeCall] = [*host, *calls]
    for i, event in enumerate(events):
        row = (event.start_us, -event.end_us, i, event)
        threads.setdefault(event.thread, []).append(row)
    for rows in threads.values():
        # Of those that begin together the longer one encloses the other, operators their calls.
        rows.sort(key=lambda row: row[:3])
        stack: list[HostSpan] = []
        for start_us, _, _, event in rows:
            while stack and stack[-1].end_us <= start_us:
                stack.pop()
            enclosing = stack[-1] if stack else None
            if isinstance(event, HostSpan):
                event.parent = enclosing
                stack.append(event)
            else:
                event.host = enclosing


def _stream_waits(syncs: Iterable[Args], calls: dict[int, RuntimeCall]) -> list[StreamWait]:
    """The waits of a stream whose two calls are both in the file."""
    found = []
    for sync in syncs:
        waiting, recorded = whole(sync.correlation), whole(sync.recorded_by)
        stream, on_stream = whole(sync.stream), whole(sync.on_stream)
        known = waiting in calls and recorded in calls and stream is not None and on_stream is not None
        if sync.sync_kind == "Stream Wait Event" and known:
            found.append(StreamWait(stream, calls[waiting], on_stream, calls[recorded]))  # type: ignore[arg-type,index]
    return found
