"""The numbers behind the page's two pictures, as plain data for its scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from hocket.graph.result import ResultRow, overlap_of
from hocket.graph.timeline import Kind, MemoryPoint, Span, Timeline
from hocket.graph.timeline_steps import Floats
from hocket.report.result_files import Entry
from hocket.text import TimeUnit, scaled_text

_LEVELS = (0.99, *(percent / 100 for percent in range(95, 35, -5)), 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
# Where the 40% contour reaches full overlap, as in the TicTac paper's Fig. 4.
_LEAST_RHO_SHOWN = 2.5
# Steps slower than the slowest policy's mean by more than this in overlap are left off the picture.
_OUTLIER_DEPTH = 0.6
_CONTOUR_POINTS = 161
# The most that a page's figures have together, to stay below a megabyte: steps as points, and spans.
_MOST_STEPS = 4000
_MOST_STEPS_EACH = 400
MOST_SPANS = 20_000
_DIGITS = 8  # of a run's times, the longest of them

_KINDS: tuple[str, ...] = get_args(Kind)
_OF_LANES = {"all-gathers": "all-gather", "reduce-scatters": "reduce-scatter"}
"""The names of transfers that have lanes of their own, by their lane."""


class Contour(NamedTuple):
    """The (rho, overlap) pairs of one GPU utilization."""

    utilization: float
    rho: list[float]
    overlap: list[float]


def contours(rho_max: float, overlap_min: float) -> list[Contour]:
    """Contours of U = 1 / (1 + rho - overlap * min(rho, 1)) that cross the plot (TicTac, Fig. 4)."""
    overlap = 1.0 - (1.0 - overlap_min) * np.linspace(1.0, 0.0, _CONTOUR_POINTS)
    found = []
    for level in _LEVELS:
        slack = 1.0 / level - 1.0
        # For rho <= 1: rho (1 - overlap) = slack; beyond: rho - overlap = slack.
        with np.errstate(all="ignore"):
            rho = np.where(slack <= 1.0 - overlap, slack / (1.0 - overlap), slack + overlap)
        inside = rho <= rho_max
        if inside.any():
            found.append(Contour(level, _round_all(rho[inside], 5), _round_all(overlap[inside], 5)))
    return found


def overlap_figure(ranking: Sequence[Entry]) -> dict[str, Any]:
    """Each result as a point and its steps as a cloud, over the contours, with the axes' ranges."""
    rows = [entry.row for entry in ranking]
    rho_max = max(_LEAST_RHO_SHOWN, 1.15 * max(row.rho for row in rows))
    lowest_mean = min(0.0, *(row.overlap for row in rows))
    most = min(_MOST_STEPS_EACH, max(1, _MOST_STEPS // len(rows)))
    clouds = [_cloud(row, most) for row in rows]
    lowest = min([lowest_mean, *(value for cloud in clouds for value in cloud)])
    overlap_min = max(lowest, lowest_mean - _OUTLIER_DEPTH) - 0.06
    return {
        "points": [
            {
                "policy": row.policy,
                "rho": row.rho,
                "overlap": row.overlap,
                "utilization": row.utilization,
                "iteration_s": row.iteration_s,
                "cloud": cloud,
            }
            for row, cloud in zip(rows, clouds, strict=True)
        ],
        "contours": [contour._asdict() for contour in contours(rho_max, overlap_min)],
        "rho_max": rho_max,
        "overlap_min": overlap_min,
    }


def _cloud(row: ResultRow, most: int) -> list[float]:
    """The overlap of single steps; of more than ``most``, evenly spread ones."""
    stride = 1 + (len(row.iterations_s) - 1) // most if row.iterations_s else 1
    values = (
        overlap_of(row.communication_s, row.compute_s, iteration_s)
        for iteration_s in row.iterations_s[::stride]
    )
    return [round(value, 5) for value in values if value is not None]


class TimelinePanel(NamedTuple):
    """A timeline to draw, whose it is, and what it is called on the page."""

    caption: str
    policy: str
    timeline: Timeline


def timeline_figure(panels: Iterable[TimelinePanel], unit: TimeUnit) -> dict[str, Any] | None:
    """The spans of each panel, times in ``unit``; None without any.

    Of more than :data:`MOST_SPANS` those that start first are drawn, in each panel its share, and its caption
    says so.
    """
    shown = list(panels)
    if not shown:
        return None
    names: dict[str, int] = {}
    room = MOST_SPANS // len(shown)
    drawn = []
    for panel in shown:
        spans = sorted(panel.timeline.spans, key=lambda span: span.start_s)[:room]
        left_out = len(panel.timeline.spans) - len(spans)
        first = f", the first {len(spans)} of {len(panel.timeline.spans)} spans" if left_out else ""
        own = {"caption": panel.caption + first, "policy": panel.policy}
        drawn.append({**own, **_panel(panel.timeline, spans, names, unit)})
    labels = _labels([panel.timeline for panel in shown])
    return {"names": list(names), "kinds": _KINDS, "labels": labels, "panels": drawn}


def _labels(timelines: Sequence[Timeline]) -> list[str]:
    """The name of each kind of span: a collective's where all of its spans are on that collective's lanes."""
    lanes_of: dict[str, set[str]] = {kind: set() for kind in _KINDS}
    for timeline in timelines:
        for span in timeline.spans:
            lanes_of[span.kind].add(timeline.lanes[span.lane].name)
    only = {kind: next(iter(lanes)) for kind, lanes in lanes_of.items() if len(lanes) == 1}
    return [_OF_LANES.get(only.get(kind, ""), kind) for kind in _KINDS]


def _panel(
    timeline: Timeline, spans: Sequence[Span], names: dict[str, int], unit: TimeUnit
) -> dict[str, Any]:
    """Lanes by process, so that a worker's links lie beside its processor, and ``spans`` as columns."""
    processes = list(dict.fromkeys(lane.process for lane in timeline.lanes))
    order = sorted(range(len(timeline.lanes)), key=lambda i: processes.index(timeline.lanes[i].process))
    place = {lane: i for i, lane in enumerate(order)}
    index_of = {kind: i for i, kind in enumerate(_KINDS)}
    # From its first span on: a run's clock may have started long before, and two runs share an axis.
    begin_s = min((span.start_s for span in spans), default=0.0)
    edges_s = np.array([(span.start_s, span.end_s) for span in spans]).reshape(-1, 2) - begin_s
    edges = edges_s * unit.per_second
    end = float(edges[:, 1].max(initial=0.0))
    starts, lengths = span_times(edges[:, 0], edges[:, 1], end)
    return {
        "title": timeline.title,
        "end": end,
        "lanes": [{"process": timeline.lanes[i].process, "name": timeline.lanes[i].name} for i in order],
        "lane": [place[span.lane] for span in spans],
        "name": [names.setdefault(span.name, len(names)) for span in spans],
        "kind": [index_of[span.kind] for span in spans],
        "start": starts,
        "length": lengths,
        "memory": _memory(timeline.memory, begin_s, unit),
    }


def _memory(points: Sequence[MemoryPoint], begin_s: float, unit: TimeUnit) -> dict[str, Any] | None:
    """The memory beside shards as columns, in bytes; None where it is not known."""
    if not points:
        return None
    at = (np.array([point.at_s for point in points]) - begin_s) * unit.per_second
    held = [point.held_bytes for point in points]
    most = max(held)
    return {
        "at": span_times(at, at, float(at.max()))[0],
        "held": held,
        "most": most,
        "most_text": scaled_text(float(most), "B"),
    }


def span_times(starts: Floats, stops: Floats, end: float) -> tuple[list[float], list[float]]:
    """Starts and lengths with as many decimals as give ``end`` eight digits: a pixel shows far less."""
    decimals = _DIGITS - len(str(int(end)))
    return _round_all(starts, max(0, decimals)), _round_all(stops - starts, max(0, decimals))


def _round_all(values: Floats, decimals: int) -> list[float]:
    rounded: list[float] = np.round(values, decimals).tolist()
    return rounded
