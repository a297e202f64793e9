"""Two runs of one step beside each other: what was predicted, and what was measured."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median_low
from typing import NamedTuple, get_args

import msgspec
import numpy as np

from hocket.graph.timeline import Kind, Span, Timeline
from hocket.graph.timeline_steps import Cover, Floats, SteppedTimeline, cut_into_steps
from hocket.report.matching import why_unmatched, with_common_names

_TRANSFERS: tuple[Kind, ...] = ("pull", "push", "reduce")
_CHUNK = re.compile(r" \d+/\d+\Z", re.ASCII)
_NUM_EXAMPLES = 5


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One side: its title, workers, whole steps (of the worker with most), and what operation begins them."""

    title: str
    workers: int
    steps: int
    anchor: str


class ComparedTime(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a step; None where a side has none of the kind. ``ratio`` is measured over predicted."""

    name: str
    predicted_s: float | None
    measured_s: float | None
    ratio: float | None


class SpanDifference(msgspec.Struct, frozen=True, kw_only=True):
    """An operation or a transfer on both sides: its start after the step's, its seconds, and the differences.

    Differences are measured less predicted. A start and one a step later are the same place in the cycle:
    the difference is the smallest that they can have.
    """

    kind: Kind
    name: str
    predicted_start_s: float
    measured_start_s: float
    start_difference_s: float
    predicted_duration_s: float
    measured_duration_s: float
    duration_difference_s: float


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why ``count`` names are on one side alone, and the first of them, each with its kind."""

    reason: str
    count: int
    examples: tuple[tuple[Kind, str], ...]


class OneSided(msgspec.Struct, frozen=True, kw_only=True):
    """Names of one side that the other lacks: their number, the first of them with their kinds, and why.

    ``names``: how many the side has in all.
    """

    count: int
    examples: tuple[tuple[Kind, str], ...]
    names: int
    reasons: tuple[Reason, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted against measured: ``figures`` of a step, and ``spans`` by name, those that differ most first.

    The figures are ``step``, ``computing`` (a processor runs an operation), ``waiting`` (it runs none),
    ``overlap`` (it computes while its gradients or parameters travel), then each kind that occurs. A figure
    is the mean over workers (for a kind: over the processes that have it) of the median over steps; what is
    said of a span is the median over all workers' steps, the lower one of two.
    """

    predicted: ComparedRun
    measured: ComparedRun
    figures: tuple[ComparedTime, ...]
    spans: tuple[SpanDifference, ...]
    only_predicted: OneSided
    only_measured: OneSided


def compare(predicted: Timeline, measured: Timeline) -> Comparison:
    """Compare two timelines of the same training, step by step as :func:`cut_into_steps` finds them.

    Workers need not be as many on both sides: figures and spans are means over workers. Things that a
    simulation and a training run call by other names are matched by parameter, as
    :mod:`hocket.report.matching` says.

    Raises
    ------
    HocketError
        When a timeline has no worker with a forward operation.
    """
    predicted, measured = with_common_names(predicted, measured)
    ours = cut_into_steps(predicted)
    theirs = cut_into_steps(measured, anchor=ours.anchor)
    figures, others = _figures(ours), _figures(theirs)
    placed, other_placed = _span_places(ours), _span_places(theirs)
    step_s = figures["step"], others["step"]
    spans = [_difference(key, placed[key], other_placed[key], step_s) for key in placed.keys() & other_placed]
    return Comparison(
        predicted=_compared_run(ours),
        measured=_compared_run(theirs),
        figures=tuple(
            _figure(name, figures.get(name), others.get(name))
            for name in ("step", "computing", "waiting", "overlap", *get_args(Kind))
            if name in figures or name in others
        ),
        spans=tuple(sorted(spans, key=_least_alike_first)),
        only_predicted=_one_sided(placed, other_placed),
        only_measured=_one_sided(other_placed, placed),
    )


def _compared_run(side: SteppedTimeline) -> ComparedRun:
    steps = max(len(edges_s) for edges_s in side.edges_s.values()) - 1
    return ComparedRun(title=side.title, workers=len(side.workers), steps=steps, anchor=side.anchor)


def _figures(side: SteppedTimeline) -> dict[str, float]:
    """Seconds of a step by the figure's name; kinds that do not occur are missing."""
    found: dict[str, list[Floats]] = {}
    shared = [span for process in side.shared for span in side.spans[process]]
    for worker, edges_s in side.edges_s.items():
        operations = side.operations_of(worker)
        transfers = _of([*side.spans[worker], *shared], _TRANSFERS)
        step_s = np.diff(edges_s)
        computing_s = Cover(operations).within_s(edges_s)
        either_s = Cover([*operations, *transfers]).within_s(edges_s)
        found.setdefault("step", []).append(step_s)
        found.setdefault("computing", []).append(computing_s)
        found.setdefault("waiting", []).append(step_s - computing_s)
        found.setdefault("overlap", []).append(computing_s + Cover(transfers).within_s(edges_s) - either_s)
    for process, spans in side.spans.items():
        if (edges := side.edges_of(process)) is None:
            continue
        for kind in get_args(Kind):
            if own := _of(spans, (kind,)):
                found.setdefault(kind, []).append(Cover(own).within_s(edges))
    return {name: float(np.mean([np.median(of_steps) for of_steps in each])) for name, each in found.items()}


def _of(spans: Iterable[Span], kinds: Sequence[Kind]) -> list[Span]:
    return [span for span in spans if span.kind in kinds]


class _Key(NamedTuple):
    kind: Kind
    name: str


class _SpanPlace(NamedTuple):
    start_s: float
    duration_s: float


def _span_places(side: SteppedTimeline) -> dict[_Key, _SpanPlace]:
    """The first start of each name in a step, and the seconds that it runs in one; in order of start."""
    found: dict[_Key, list[_SpanPlace]] = {}
    for process, spans in side.spans.items():
        if (edges_s := side.edges_of(process)) is not None:
            for key, place in _by_step(spans, edges_s.tolist()):
                found.setdefault(key, []).append(place)
    places = {
        # A start just after an anchor and one just before it have no middle: the median is one of them.
        key: _SpanPlace(*(median_low(values) for values in zip(*each, strict=True)))
        for key, each in found.items()
    }
    return dict(sorted(places.items(), key=lambda item: item[1].start_s))


def _by_step(spans: Iterable[Span], edges_s: Sequence[float]) -> Iterator[tuple[_Key, _SpanPlace]]:
    """Of each name, its place in every step that it starts in; ``spans`` in order of start.

    A span in pieces, the chunks of a reduction (``NAME 2/8``) or an operation that waits in between, counts
    once: from the start of the first piece, for as long as one of them runs.
    """
    first: dict[tuple[_Key, int], float] = {}
    until: dict[tuple[_Key, int], float] = {}
    busy: dict[tuple[_Key, int], float] = {}
    for span in spans:
        if not edges_s[0] <= span.start_s < edges_s[-1]:
            continue
        step = bisect_right(edges_s, span.start_s) - 1
        at = _Key(span.kind, _CHUNK.sub("", span.name)), step
        first.setdefault(at, span.start_s - edges_s[step])
        reached_s = max(until.get(at, span.start_s), span.start_s)
        busy[at] = busy.get(at, 0.0) + max(0.0, span.end_s - reached_s)
        until[at] = max(reached_s, span.end_s)
    for at, start_s in first.items():
        yield at[0], _SpanPlace(start_s, busy[at])


def _figure(name: str, predicted_s: float | None, measured_s: float | None) -> ComparedTime:
    ratio = measured_s / predicted_s if measured_s is not None and predicted_s else None
    return ComparedTime(name=name, predicted_s=predicted_s, measured_s=measured_s, ratio=ratio)


def _difference(
    key: _Key, ours: _SpanPlace, theirs: _SpanPlace, step_s: tuple[float, float]
) -> SpanDifference:
    late_s = theirs.start_s - ours.start_s
    return SpanDifference(
        kind=key.kind,
        name=key.name,
        predicted_start_s=ours.start_s,
        measured_start_s=theirs.start_s,
        start_difference_s=min(late_s, late_s + step_s[0], late_s - step_s[1], key=abs),
        predicted_duration_s=ours.duration_s,
        measured_duration_s=theirs.duration_s,
        duration_difference_s=theirs.duration_s - ours.duration_s,
    )


def _least_alike_first(span: SpanDifference) -> tuple[float, float, str]:
    apart_s = max(abs(span.start_difference_s), abs(span.duration_difference_s))
    return -apart_s, span.predicted_start_s, span.name


def _one_sided(places: Mapping[_Key, _SpanPlace], others: Mapping[_Key, _SpanPlace]) -> OneSided:
    alone = [key for key in places if key not in others]
    reasons: dict[str, list[_Key]] = {}
    for key in alone:
        reasons.setdefault(why_unmatched(key.kind, key.name), []).append(key)
    return OneSided(
        count=len(alone),
        examples=_examples(alone),
        names=len(places),
        reasons=tuple(
            Reason(reason=reason, count=len(keys), examples=_examples(keys))
            for reason, keys in reasons.items()
        ),
    )


def _examples(keys: Sequence[_Key]) -> tuple[tuple[Kind, str], ...]:
    return tuple((key.kind, key.name) for key in keys[:_NUM_EXAMPLES])
