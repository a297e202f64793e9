"""The network of a recorded job: what the collectives that plans place took by size, a line a + b d.

These are the all-reduces of gradients, or the all-gathers and reduce-scatters of units, each half of an
all-reduce in a ring. A kernel of a collective runs until all ranks have sent their part, so it also waits for
those that come late. Of several ranks the shortest of the same collective is that of the rank that came last,
which waited for none; of one rank the lower quarter of its times is taken, in which waiting may be left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from hocket.interop.kineto.events import Trace, whole
from hocket.interop.kineto.traced_collectives import ALL_REDUCE, TracedCollective
from hocket.interop.kineto.traced_operations import TracedStep
from hocket.network import NetworkFile
from hocket.network.file import AllReduce, Fit, MeasuredPoint, RecordedReductions
from hocket.network.fit import fit_line
from hocket.network.units import MOST_BPS
from hocket.text import counted, duration_text, scaled_text

_MICRO = 1e-6
_LEAST_S = 1e-9
_QUARTER = 0.25
# Sizes closer than that say how long such a message takes, not what of it is startup.
_APART = 1.5
_ONE_SIZE = "sizes are alike, so a is taken to be 0, and smaller messages may take longer than by it"


@dataclass(frozen=True, kw_only=True)
class RecordedNetwork:
    """The network of a recorded job, None where it cannot be told, and what is to be said of it."""

    workers: int
    file: NetworkFile | None
    notes: tuple[str, ...]


def recorded_network(traces: Sequence[Trace], kept: Sequence[Sequence[TracedStep]]) -> RecordedNetwork | None:
    """Fit the exchanges of each rank's steps; None for a job of one rank, or without any."""
    exchanges = kept[0][0].exchanges
    workers = _workers(traces[0], exchanges)
    if workers < 2 or not exchanges:
        return None
    if any(exchange.size_bytes is None for exchange in exchanges):
        said = "what transfers cost cannot be told: the sizes of its collectives are not recorded"
        return RecordedNetwork(workers=workers, file=None, notes=(said,))
    seconds = defaultdict(list)
    for alike in zip(*kept, strict=True):
        for same in zip(*(step.exchanges for step in alike), strict=True):
            took_us = min(exchange.gpu.end_us - exchange.gpu.start_us for exchange in same)
            seconds[same[0].size_bytes or 0, same[0].kind].append(took_us * _MICRO)
    several = len(kept) > 1
    points = [
        MeasuredPoint(size_bytes=size, seconds=max(_LEAST_S, _typical(times, several=several)))
        for (size, _), times in sorted(seconds.items())
        if size > 0
    ]
    if not points:
        return RecordedNetwork(workers=workers, file=None, notes=("its collectives carry nothing",))
    kinds = tuple(sorted({exchange.kind for exchange in exchanges}))
    recorded = RecordedReductions(
        traces=tuple(Path(trace.source).name for trace in traces),
        steps=len(kept[0]),
        group=exchanges[0].group,
        kinds=kinds,
        fit=_line(points),
    )
    file = _file(recorded, workers)
    return RecordedNetwork(workers=workers, file=file, notes=_notes(file, workers, several=several))


def _workers(trace: Trace, exchanges: Sequence[TracedCollective]) -> int:
    """Of the exchanges' process group, or of the job."""
    sizes = [exchange.group_size for exchange in exchanges if exchange.group_size is not None]
    return sizes[0] if sizes else (whole(trace.world_size) or 1)


def _typical(times: Sequence[float], *, several: bool) -> float:
    return float(np.median(times) if several else np.quantile(times, _QUARTER))


def _line(points: list[MeasuredPoint]) -> Fit:
    fit = fit_line(points)
    if points[-1].size_bytes >= _APART * points[0].size_bytes:
        return fit
    # Any line goes through one size: all of the time is taken to be sending.
    b_s_per_byte = sum(p.seconds for p in points) / sum(p.size_bytes for p in points)
    return msgspec.structs.replace(fit, a_s=0.0, b_s_per_byte=b_s_per_byte, note=_ONE_SIZE)


def _file(recorded: RecordedReductions, workers: int) -> NetworkFile:
    """The network whose rings take as long; an all-reduce is two halves, each between all ranks."""
    fit, halves = recorded.fit, 2 if recorded.kinds == (ALL_REDUCE,) else 1
    sent, rounds = halves * (workers - 1) / workers, halves * (workers - 1)
    bits = 8 * sent / fit.b_s_per_byte if fit.b_s_per_byte else MOST_BPS
    measured = AllReduce(workers=workers, a_s=fit.a_s, b_s_per_byte=fit.b_s_per_byte)
    return NetworkFile(
        bandwidth_bps=min(bits, MOST_BPS),
        startup_s=fit.a_s / rounds,
        allreduce=measured if halves == 2 else None,
        recorded=recorded,
    )


def _notes(file: NetworkFile, workers: int, *, several: bool) -> tuple[str, ...]:
    assert file.recorded is not None
    recorded = file.recorded
    fit = recorded.fit
    points = fit.points
    sizes = f"{points[0].size_bytes / 2**20:.2f} to {points[-1].size_bytes / 2**20:.2f} MiB"
    waiting = (
        f"the shortest of {counted(len(recorded.traces), 'rank')}, without waiting"
        if several
        else "the lower quarter of one rank's times, in which waiting for others may be left: give more ranks"
    )
    of_group = f" of group {recorded.group}" if recorded.group else ""
    name = "an all-reduce" if recorded.kinds == (ALL_REDUCE,) else "an all-gather or reduce-scatter"
    line = (
        f"{name}{of_group} between {workers} ranks takes {duration_text(fit.a_s)} and "
        f"{duration_text(fit.b_s_per_byte)} a byte (as a ring at "
        f"{scaled_text(file.bandwidth_bps, 'bit/s')}): fitted to {counted(len(points), 'size')}, {sizes}, "
        f"{waiting}; off by {fit.rms_error:.0%} (rms)"
    )
    held = (f"the fit: {fit.note}",) if fit.note else ()
    return (line, *held)
