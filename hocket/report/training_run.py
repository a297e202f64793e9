"""A training run's timeline in numbers: its steps, what each worker does in them, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hocket.graph.timeline import Kind, Span, Timeline
from hocket.graph.timeline_steps import Cover, SteppedTimeline, cut_into_steps

TRANSFERS: tuple[Kind, ...] = ("pull", "push", "reduce")


class WorkerSteps(NamedTuple):
    """Seconds of each of a worker's steps: the whole, computing, and computing while something travels."""

    worker: str
    step_s: list[float]
    computing_s: list[float]
    overlap_s: list[float]


class NamedTime(NamedTuple):
    """Seconds a step that one name takes: the mean over steps and workers, and the longest step's."""

    name: str
    mean_s: float
    longest_s: float


class TrainingRun(NamedTuple):
    """A training run: ``workers``, and the times of waits and transfers, the longest first."""

    anchor: str
    workers: list[WorkerSteps]
    waits: list[NamedTime]
    transfers: list[NamedTime]


def training_of(timeline: Timeline) -> TrainingRun:
    """The whole steps of ``timeline``, as :func:`cut_into_steps` finds them.

    Raises
    ------
    HocketError
        When no worker runs a forward operation.
    """
    side = cut_into_steps(timeline)
    return TrainingRun(
        anchor=side.anchor,
        workers=[_worker(side, worker) for worker in side.edges_s],
        waits=_times_by_name(side, ("wait",)),
        transfers=_times_by_name(side, TRANSFERS),
    )


def _worker(side: SteppedTimeline, worker: str) -> WorkerSteps:
    edges_s = side.edges_s[worker]
    operations = side.operations_of(worker)
    shared = [span for process in side.shared for span in side.spans[process]]
    transfers = [span for span in [*side.spans[worker], *shared] if span.kind in TRANSFERS]
    computing_s = Cover(operations).within_s(edges_s)
    either_s = Cover([*operations, *transfers]).within_s(edges_s)
    overlap_s = computing_s + Cover(transfers).within_s(edges_s) - either_s
    return WorkerSteps(worker, np.diff(edges_s).tolist(), computing_s.tolist(), overlap_s.tolist())


def _times_by_name(side: SteppedTimeline, kinds: Sequence[Kind]) -> list[NamedTime]:
    """The times of spans of ``kinds`` by name, the longest mean first."""
    seconds: dict[str, list[float]] = {}
    steps = 0
    for process, spans in side.spans.items():
        edges_s = side.edges_of(process)
        if edges_s is None:
            continue
        by_name: dict[str, list[Span]] = {}
        for span in spans:
            if span.kind in kinds:
                by_name.setdefault(span.name, []).append(span)
        steps += len(edges_s) - 1 if by_name else 0
        for name, own in by_name.items():
            seconds.setdefault(name, []).extend(Cover(own).within_s(edges_s).tolist())
    found = [NamedTime(name, sum(each) / steps, max(each)) for name, each in seconds.items()]
    return sorted(found, key=lambda each: (-each.mean_s, each.name))
