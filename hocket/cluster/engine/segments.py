"""A job's iteration as the engine runs it: segments of computing, between which batches of gradients matter.

A job without batches has two, its forward and its backward task. One whose transfers overlap computing has
them cut where a batch's gradients are complete and where the next iteration needs one. Its batches travel one
after the other, in their order, so how many are complete, and have arrived, is all there is to know.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from hocket.cluster.jobs import Job

# The iteration that keys count: by then what an iteration takes alone changes no more, as a rule.
STEADY_ITERATIONS = 16


class Segment(NamedTuple):
    """Part of a task; the fields of ``SEGMENT`` that do not change."""

    ticks: int
    backward: bool
    needs: int
    gives: int


def task_segments(job: Job, tick_s: float) -> tuple[Segment, ...]:
    """The two tasks of a job without batches, or inside one server."""
    forward, backward = round(job.forward_s / tick_s), round(job.backward_s / tick_s)
    return Segment(forward, False, 0, 0), Segment(backward, True, 0, 0)


def overlapped_segments(job: Job, tick_s: float) -> tuple[Segment, ...]:
    """The segments of a job on several servers that has batches; none of one without."""
    if not job.batches:
        return ()
    forward, backward = round(job.forward_s / tick_s), round(job.backward_s / tick_s)
    return _cut_segments(
        forward, backward, tuple((round(b.ready_s / tick_s), round(b.due_s / tick_s)) for b in job.batches)
    )


@lru_cache(maxsize=4096)
def _cut_segments(forward: int, backward: int, times: tuple[tuple[int, int], ...]) -> tuple[Segment, ...]:
    """``times``: of each batch when it is complete, and when the next iteration needs it."""
    computing = forward + backward
    # Rounding to ticks must not make a batch complete at once, or needed at the very end or later than it is
    # computed anew.
    ready = [min(max(time, 1), computing) for time, _ in times]
    due = [min(time, ready[b], computing - 1) for b, (_, time) in enumerate(times)]

    def gives(at: int) -> int:
        """The number of batches complete at ``at``, from the first one on."""
        return next((b for b, time in enumerate(ready) if time > at), len(ready))

    def needs(at: int) -> int:
        """The number of those before that must have arrived: the last one that is due, and all before it."""
        return max((b + 1 for b, time in enumerate(due) if time <= at), default=0)

    def matters(at: int) -> bool:
        return (gives(at), needs(at)) != (gives(at - 1), needs(at - 1))

    segments = []
    for begin, end, is_backward in ((0, forward, False), (forward, computing, True)):
        marks = sorted({time for time in (*ready, *due) if begin < time < end and matters(time)})
        for start, stop in pairwise((begin, *marks, end)):
            segments.append(Segment(stop - start, is_backward, needs(start), gives(stop)))
    return tuple(segments)


@lru_cache(maxsize=4096)
def steady_ticks(segments: tuple[Segment, ...], transfers: tuple[int, ...]) -> int:
    """Ticks that an iteration takes alone on GPUs and links, once those before it have left their mark.

    transfers : ticks that each batch takes alone.
    """
    arrivals = [0] * len(transfers)
    begun = now = free = 0
    for _ in range(STEADY_ITERATIONS):
        begun = now
        ready: list[int] = []
        for segment in segments:
            if segment.needs:
                now = max(now, arrivals[segment.needs - 1])
            now += segment.ticks
            ready += [now] * (segment.gives - len(ready))
        for batch, ticks in enumerate(transfers):
            free = max(free, ready[batch]) + ticks
            arrivals[batch] = free
    return now - begun
