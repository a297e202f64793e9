"""The numbers behind the page's two pictures, as plain data for its scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from hocket.graph.result import ResultRow, overlap_of
from hocket.graph.timeline import Kind, Timeline
from hocket.report.load import Entry
from hocket.report.table import TimeUnit

_LEVELS = (0.99, *(percent / 100 for percent in range(95, 35, -5)), 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
# Where the 40% contour reaches full overlap, as in the TicTac paper's Fig. 4.
_LEAST_RHO_SHOWN = 2.5
# Steps slower than the slowest policy's mean by more than this in overlap are left off the picture.
_OUTLIER_DEPTH = 0.6
_CONTOUR_POINTS = 161
_MAX_CLOUD = 400

_KINDS: tuple[str, ...] = get_args(Kind)


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
            found.append(Contour(level, _rounded(rho[inside], 5), _rounded(overlap[inside], 5)))
    return found


def overlap_figure(ranking: Sequence[Entry]) -> dict[str, Any]:
    """Each result as a point and its steps as a cloud, over the contours, with the axes' ranges."""
    rows = [entry.row for entry in ranking]
    rho_max = max(_LEAST_RHO_SHOWN, 1.15 * max(row.rho for row in rows))
    lowest_mean = min(0.0, *(row.overlap for row in rows))
    clouds = [_cloud(row) for row in rows]
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


def _cloud(row: ResultRow) -> list[float]:
    """The overlap of single steps; of very many, evenly spread ones."""
    stride = 1 + (len(row.iterations_s) - 1) // _MAX_CLOUD if row.iterations_s else 1
    values = (
        overlap_of(row.communication_s, row.compute_s, iteration_s)
        for iteration_s in row.iterations_s[::stride]
    )
    return [round(value, 5) for value in values if value is not None]


class Panel(NamedTuple):
    """A timeline to draw, whose it is, and what it is called on the page."""

    caption: str
    policy: str
    timeline: Timeline


def timeline_figure(panels: Iterable[Panel], unit: TimeUnit) -> dict[str, Any] | None:
    """The spans of each panel, times in ``unit``; None without any."""
    names: dict[str, int] = {}
    drawn = [
        {"caption": panel.caption, "policy": panel.policy, **_panel(panel.timeline, names, unit)}
        for panel in panels
    ]
    if not drawn:
        return None
    return {"names": list(names), "kinds": _KINDS, "panels": drawn}


def _panel(timeline: Timeline, names: dict[str, int], unit: TimeUnit) -> dict[str, Any]:
    """Lanes by process, so that a worker's links lie beside its processor, and spans as columns."""
    processes = list(dict.fromkeys(lane.process for lane in timeline.lanes))
    order = sorted(range(len(timeline.lanes)), key=lambda i: processes.index(timeline.lanes[i].process))
    place = {lane: i for i, lane in enumerate(order)}
    index_of = {kind: i for i, kind in enumerate(_KINDS)}
    spans = timeline.spans
    # From its first span on: a run's clock may have started long before, and two runs share an axis.
    begin_s = min((span.start_s for span in spans), default=0.0)
    edges_s = np.array([(span.start_s, span.end_s) for span in spans]).reshape(-1, 2) - begin_s
    # A nanosecond or less: finer than any clock that measured them.
    starts, stops = (_rounded(column * unit.per_second, 6) for column in edges_s.T)
    return {
        "title": timeline.title,
        "end": max(stops, default=0.0),
        "lanes": [{"process": timeline.lanes[i].process, "name": timeline.lanes[i].name} for i in order],
        "lane": [place[span.lane] for span in spans],
        "name": [names.setdefault(span.name, len(names)) for span in spans],
        "kind": [index_of[span.kind] for span in spans],
        "start": starts,
        "stop": stops,
    }


def _rounded(values: np.ndarray[Any, np.dtype[np.float64]], decimals: int) -> list[float]:
    rounded: list[float] = np.round(values, decimals).tolist()
    return rounded
