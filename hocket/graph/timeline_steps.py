"""A timeline cut into its steps: when each worker's begin, and for how long something is busy in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from hocket.errors import HocketError
from hocket.graph.timeline import Kind, Span, Timeline

Floats = npt.NDArray[np.float64]

_OPERATIONS: tuple[Kind, ...] = ("forward", "backward", "update", "parse")


@dataclass(frozen=True, kw_only=True)
class SteppedTimeline:
    """A timeline with its steps.

    ``anchor``: the forward operation that steps begin with; ``edges_s``: of each worker with a whole step
    when its steps begin, and the last of them ends, shape (steps + 1,); ``spans``: of each process, in order
    of start. Times are from the timeline's first span on.
    """

    title: str
    anchor: str
    edges_s: Mapping[str, Floats]
    spans: Mapping[str, Sequence[Span]]

    @property
    def workers(self) -> list[str]:
        """The processes that run forward operations, also those without a whole step."""
        return [process for process, spans in self.spans.items() if _computes(spans)]

    @property
    def shared(self) -> list[str]:
        """The others: servers, or a network that is drawn once for all."""
        return [process for process, spans in self.spans.items() if not _computes(spans)]

    def edges_of(self, process: str) -> Floats | None:
        """A worker's own edges, None without a whole step; what is shared has those of the first worker."""
        if _computes(self.spans[process]):
            return self.edges_s.get(process)
        return next(iter(self.edges_s.values()))

    def operations_of(self, worker: str) -> list[Span]:
        """Spans of a worker's processor: not of what others do for it, nor of what it waits for."""
        spans = self.spans[worker]
        processor = {span.lane for span in spans if span.kind in ("forward", "backward")}
        return [span for span in spans if span.lane in processor and span.kind in _OPERATIONS]


def cut_into_steps(timeline: Timeline, *, anchor: str | None = None) -> SteppedTimeline:
    """Find the steps of every worker.

    A step begins with ``anchor``, a forward operation, when a backward pass has gone before it; by default
    that is the operation which follows backward passes most often. Whole steps count: what is recorded before
    the first anchor and after the last one is left out. With gradient accumulation every forward and backward
    pass is a step; a backward pass that recomputes the anchor itself is cut in two. A worker without backward
    passes (inference) begins a step whenever it runs the anchor.

    A timeline in which no worker comes to a second anchor is one step, such as the simulator draws: a period
    of steps that follow one another. It is continued periodically, so that its step, too, runs from anchor to
    anchor.

    Raises
    ------
    HocketError
        When no worker runs a forward operation.
    """
    begin_s = min((span.start_s for span in timeline.spans), default=0.0)
    spans: dict[str, list[Span]] = {lane.process: [] for lane in timeline.lanes}
    for span in timeline.spans:
        spans[timeline.lanes[span.lane].process].append(_shifted(span, -begin_s))
    workers = [own for own in spans.values() if _computes(own)]
    if not workers:
        raise HocketError(
            f"timeline '{timeline.title}' holds no forward operation, and steps begin with one; record the "
            "processors too"
        )
    if anchor is None or not any(_begins(own, anchor) for own in workers):
        anchor = _anchor_of(workers)
    begins = {process: _begins(own, anchor) for process, own in spans.items()}
    if max(map(len, begins.values())) < 2:
        extent_s = timeline.end_s - begin_s
        spans = {process: _repeated(own, extent_s) for process, own in spans.items()}
        begins = {process: _begins(own, anchor)[1:] for process, own in spans.items()}
    return SteppedTimeline(
        title=timeline.title,
        anchor=anchor,
        edges_s={worker: np.array(own) for worker, own in begins.items() if len(own) > 1},
        spans=spans,
    )


def _computes(spans: Iterable[Span]) -> bool:
    return any(span.kind == "forward" for span in spans)


def _what(span: Span) -> tuple[int, str, Kind]:
    return span.lane, span.name, span.kind


def _shifted(span: Span, by_s: float) -> Span:
    return msgspec.structs.replace(span, start_s=span.start_s + by_s, end_s=span.end_s + by_s)


def _repeated(spans: Iterable[Span], period_s: float) -> list[Span]:
    """A period's spans, those of the one before and of the one after it, in order of start.

    Spans that the period's edge cut in two are put together again.
    """
    tails = {_what(span): span for span in spans if span.start_s == 0.0}
    whole: list[Span] = []
    for span in spans:
        if span.start_s > 0.0 and span.end_s == period_s and (tail := tails.pop(_what(span), None)):
            whole.remove(tail)
            span = msgspec.structs.replace(span, end_s=period_s + tail.end_s)
        whole.append(span)
    return [_shifted(span, k * period_s) for k in (-1, 0, 1) for span in whole]


def _begins(spans: Sequence[Span], anchor: str) -> list[float]:
    inference = all(span.kind != "backward" for span in spans)
    begins, backward_passed = [], True
    for span in spans:
        if span.kind == "backward":
            backward_passed = True
        elif span.kind == "forward" and span.name == anchor and backward_passed:
            begins.append(span.start_s)
            backward_passed = inference
    return begins


def _anchor_of(workers: Iterable[Sequence[Span]]) -> str:
    """The name that follows backward passes most often; the first forward one where none does."""
    found: Counter[str] = Counter()
    first: str | None = None
    for spans in workers:
        last_kind = ""
        for span in spans:
            if span.kind == "forward":
                first = first or span.name
                if last_kind == "backward":
                    found[span.name] += 1
            if span.kind in ("forward", "backward"):
                last_kind = span.kind
    assert first is not None, "a worker has forward operations"
    # A window of one step holds at most one such place a worker, and there it may begin anywhere.
    return found.most_common(1)[0][0] if found else first


class Cover:
    """The union of spans: when at least one of them runs."""

    def __init__(self, spans: Iterable[Span]) -> None:
        edges = np.array(sorted((span.start_s, span.end_s) for span in spans), np.float64).reshape(-1, 2)
        reached = np.maximum.accumulate(edges[:, 1])
        opens = np.ones(len(edges), np.bool_)
        opens[1:] = edges[1:, 0] > reached[:-1]
        self._starts_s: Floats = edges[opens, 0]
        self._ends_s: Floats = reached[np.append(opens[1:], True)] if len(edges) else reached
        self._before_s = np.concatenate(([0.0], np.cumsum(self._ends_s - self._starts_s)))

    def within_s(self, edges_s: Floats) -> Floats:
        """Seconds covered between each of the (n + 1,) edges, which ascend, and the next one, shape (n,)."""
        place: npt.NDArray[np.int64] = np.searchsorted(self._starts_s, edges_s, side="right")
        beyond_s: Any = np.zeros(len(edges_s))
        inside = place > 0
        beyond_s[inside] = np.maximum(0.0, self._ends_s[place[inside] - 1] - edges_s[inside])
        covered_s: Floats = np.diff(self._before_s[place] - beyond_s)
        return covered_s
