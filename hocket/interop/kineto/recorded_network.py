"""The network of a recorded job: what its all-reduces took, by their size, as a line a + b d.

A kernel of an all-reduce runs until all ranks have sent their part, so it also waits for those that come
late. Of several ranks the shortest of the same all-reduce is that of the rank that came last, which waited
for none; of one rank the lower quarter of its times is taken, in which waiting may be left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from hocket.interop.kineto.events import Trace, whole
from hocket.interop.kineto.traced_collectives import TracedCollective
from hocket.interop.kineto.traced_operations import TracedStep
from hocket.network import NetworkFile
from hocket.network.file import AllReduce, MeasuredPoint, RecordedReductions
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
    """Fit the gradients' all-reduces of each rank's steps; None for a job of one rank, or without any."""
    reductions = kept[0][0].reductions
    workers = _workers(traces[0], reductions)
    if workers < 2 or not reductions:
        return None
    if any(reduction.size_bytes is None for reduction in reductions):
        said = "what transfers cost cannot be told: the sizes of its all-reduces are not recorded"
        return RecordedNetwork(workers=workers, file=None, notes=(said,))
    seconds = defaultdict(list)
    for alike in zip(*kept, strict=True):
        for same in zip(*(step.reductions for step in alike), strict=True):
            took_us = min(reduction.gpu.end_us - reduction.gpu.start_us for reduction in same)
            seconds[same[0].size_bytes or 0].append(took_us * _MICRO)
    several = len(kept) > 1
    points = [
        MeasuredPoint(size_bytes=size, seconds=max(_LEAST_S, _typical(times, several=several)))
        for size, times in sorted(seconds.items())
        if size > 0
    ]
    if not points:
        return RecordedNetwork(workers=workers, file=None, notes=("its all-reduces carry nothing",))
    file = _fitted(points, workers, traces, len(kept[0]), reductions[0].group)
    return RecordedNetwork(workers=workers, file=file, notes=_notes(file, several=several))


def _workers(trace: Trace, reductions: Sequence[TracedCollective]) -> int:
    """Of the reductions' process group, or of the job."""
    sizes = [reduction.group_size for reduction in reductions if reduction.group_size is not None]
    return sizes[0] if sizes else (whole(trace.world_size) or 1)


def _typical(times: Sequence[float], *, several: bool) -> float:
    return float(np.median(times) if several else np.quantile(times, _QUARTER))


def _fitted(
    points: list[MeasuredPoint], workers: int, traces: Sequence[Trace], steps: int, group: str
) -> NetworkFile:
    fit = fit_line(points)
    if points[-1].size_bytes < _APART * points[0].size_bytes:
        # Any line goes through one size: all of the time is taken to be sending.
        fit = msgspec.structs.replace(
            fit,
            a_s=0.0,
            b_s_per_byte=sum(p.seconds for p in points) / sum(p.size_bytes for p in points),
            note=_ONE_SIZE,
        )
    sent, rounds = 2 * (workers - 1) / workers, 2 * (workers - 1)
    bits = 8 * sent / fit.b_s_per_byte if fit.b_s_per_byte else MOST_BPS
    return NetworkFile(
        bandwidth_bps=min(bits, MOST_BPS),
        startup_s=fit.a_s / rounds,
        allreduce=AllReduce(workers=workers, a_s=fit.a_s, b_s_per_byte=fit.b_s_per_byte),
        recorded=RecordedReductions(
            traces=tuple(Path(trace.source).name for trace in traces), steps=steps, group=group, fit=fit
        ),
    )


def _notes(file: NetworkFile, *, several: bool) -> tuple[str, ...]:
    assert file.allreduce is not None
    assert file.recorded is not None
    reduction, recorded = file.allreduce, file.recorded
    points = recorded.fit.points
    sizes = f"{points[0].size_bytes / 2**20:.2f} to {points[-1].size_bytes / 2**20:.2f} MiB"
    waiting = (
        f"the shortest of {counted(len(recorded.traces), 'rank')}, without waiting"
        if several
        else "the lower quarter of one rank's times, in which waiting for others may be left: give more ranks"
    )
    of_group = f" of group {recorded.group}" if recorded.group else ""
    line = (
        f"an all-reduce{of_group} between {reduction.workers} ranks takes {duration_text(reduction.a_s)} and "
        f"{duration_text(reduction.b_s_per_byte)} a byte (as a ring at "
        f"{scaled_text(file.bandwidth_bps, 'bit/s')}): fitted to {counted(len(points), 'size')}, {sizes}, "
        f"{waiting}; off by {recorded.fit.rms_error:.0%} (rms)"
    )
    held = (f"the fit: {recorded.fit.note}",) if recorded.fit.note else ()
    return (line, *held)
