"""In words and tables: the numbers that figures show, for readers who do not see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hocket.cluster.results.run_statistics import PARTS, ClusterRow
from hocket.columns import Column, percent_column, text_column
from hocket.graph.result import ResultRow
from hocket.graph.timeline import Span
from hocket.graph.timeline_steps import Cover
from hocket.predictor.answer import name_of
from hocket.predictor.prediction import Prediction
from hocket.predictor.prediction_curves import curves
from hocket.report.cluster_table import PART_NAMES
from hocket.report.step_plot_data import MOST_SPANS, TimelinePanel
from hocket.text import TimeUnit, counted, four_digits, rate_text, scaled_text, time_text

_NAMED = 10
_MOST_LANES = 60


class BusyRow(NamedTuple):
    """A lane of a drawn timeline: how long it is busy, and with what, as shares of the time drawn."""

    run: str
    process: str
    lane: str
    busy: float
    kinds: str


def sentences_text(sentences: Sequence[str]) -> str:
    """The first sentences, and how many more there are."""
    more = len(sentences) - _NAMED
    return "; ".join(sentences[:_NAMED]) + (f"; and {more} more, in the table" if more > 0 else "") + "."


def overlap_text(rows: Sequence[ResultRow]) -> str:
    """The points of the overlap figure, best first."""
    return sentences_text(
        [
            f"{row.title}: overlap {row.overlap:.3f} at rho {row.rho:.3f}, utilization {row.utilization:.1%}"
            for row in rows
        ]
    )


def cluster_texts(names: Sequence[str], rows: Sequence[ClusterRow], unit: TimeUnit) -> dict[str, str]:
    """The curves, bars and levels of a cluster's figures, by the figure's name."""
    named = list(zip(names, rows, strict=True))
    parts = []
    for name, row in named:
        times_s = [(part, getattr(row, f"average_{part}_s")) for part in PARTS]
        known = [
            f"{_in_a_sentence(PART_NAMES[part][0])} {time_text(s, unit)}"
            for part, s in times_s
            if s is not None
        ]
        parts.append(f"{name}: {', '.join(known)}")
    return {
        "jct": sentences_text(
            [
                f"{name}: half of the jobs within {time_text(row.median_jct_s, unit)}, 19 of 20 within"
                f" {time_text(row.p95_jct_s, unit)}"
                for name, row in named
            ]
        ),
        "parts": sentences_text(parts),
        "contention": sentences_text(
            [
                f"{name}: {sum(found.mean) / max(1, len(found.mean)):.2f} on average,"
                f" {max(found.most, default=0)} at most"
                for name, row in named
                if (found := row.contention) is not None
            ]
        ),
    }


def residence_text(figure: dict[str, Any], unit: TimeUnit) -> str:
    """A sentence on the number of jobs and GPUs that the drawn panels have, and their end."""
    sentences = []
    for panel in figure["panels"]:
        gpus = sum(lane["name"].startswith("GPU") for lane in panel["lanes"])
        until = time_text(panel["end"] / unit.per_second, unit)
        sentences.append(f"{panel['caption']}: {len(set(panel['name']))} jobs on {gpus} GPUs until {until}")
    return sentences_text(sentences)


def prediction_texts(rows: Sequence[Prediction]) -> dict[str, str]:
    """The ends of each curve of a prediction's figures, by the figure's name."""
    found: dict[str, list[str]] = {"throughput": [], "busy": [], "cost": []}
    for curve in curves(rows):
        name, first, last = name_of(curve, rows), curve[0], curve[-1]
        span = f"{name}: from {counted(first.workers, 'worker')} to {last.workers}"
        found["throughput"].append(f"{span}, {rate_text(first.throughput)} to {rate_text(last.throughput)}")
        ends = f"{first.bottleneck} {first.bottleneck_utilization:.0%}"
        if len(curve) > 1:
            ends += f" to {last.bottleneck} {last.bottleneck_utilization:.0%}"
        found["busy"].append(f"{span}, {ends}")
        if first.cost_per_example is not None and last.cost_per_example is not None:
            costs = [four_digits(1e6 * cost) for cost in (first.cost_per_example, last.cost_per_example)]
            found["cost"].append(f"{span}, {costs[0]} to {costs[1]}")
    return {figure: sentences_text(sentences) for figure, sentences in found.items()}


def _in_a_sentence(name: str) -> str:
    return name if name[:2].isupper() else name[0].lower() + name[1:]


def timeline_text(panels: Sequence[TimelinePanel], unit: TimeUnit) -> str:
    """A sentence on the length of each drawn run, what of it is drawn, and how busy its first lane is."""
    sentences = []
    room = MOST_SPANS // max(1, len(panels))
    for panel in panels:
        rows = busy_rows(panel, most=1)
        extent_s = _extent_s(panel.timeline.spans)
        first = f", {rows[0].process} {rows[0].lane} busy {rows[0].busy:.0%}" if rows else ""
        most = max((point.held_bytes for point in panel.timeline.memory), default=0)
        held = f", {scaled_text(float(most), 'B')} beside shards at most" if most else ""
        num_spans = len(panel.timeline.spans)
        drawn = f", of its {num_spans} spans the first {room} drawn" if num_spans > room else ""
        sentences.append(f"{panel.caption}: {time_text(extent_s, unit)} long{drawn}{first}{held}")
    return sentences_text(sentences)


def busy_columns(panels: Sequence[TimelinePanel]) -> list[Column]:
    """The lanes of all panels, as many as are read; no columns without a lane."""
    most = _MOST_LANES // max(1, len(panels))
    rows = [row for panel in panels for row in busy_rows(panel, most=most)]
    columns = [
        text_column("Run", [row.run for row in rows]),
        text_column("Process", [row.process for row in rows]),
        text_column("Lane", [row.lane for row in rows]),
        percent_column("Busy", [row.busy for row in rows]),
        text_column("With", [row.kinds for row in rows]),
    ]
    return columns if rows else []


def busy_rows(panel: TimelinePanel, *, most: int) -> list[BusyRow]:
    """The first lanes of a panel, with shares of its time."""
    timeline = panel.timeline
    of_lane: dict[int, dict[str, list[Span]]] = {}
    for span in timeline.spans:
        of_lane.setdefault(span.lane, {}).setdefault(span.kind, []).append(span)
    extent_s = _extent_s(timeline.spans)
    rows = []
    for index, lane in enumerate(timeline.lanes[:most]):
        own = of_lane.get(index, {})
        shares = {kind: _busy_s(spans) / extent_s for kind, spans in own.items() if extent_s > 0}
        every = [span for kind, spans in own.items() if kind != "wait" for span in spans]
        busy = _busy_s(every) / extent_s if extent_s > 0 else 0.0
        kinds = ", ".join(f"{kind} {share:.1%}" for kind, share in shares.items())
        rows.append(BusyRow(panel.policy, lane.process, lane.name, busy, kinds))
    return rows


def _busy_s(spans: Sequence[Span]) -> float:
    if not spans:
        return 0.0
    ends_s = np.array([min(span.start_s for span in spans), max(span.end_s for span in spans)])
    return float(Cover(spans).within_s(ends_s)[0])


def _extent_s(spans: Sequence[Span]) -> float:
    begin_s = min((span.start_s for span in spans), default=0.0)
    return max((span.end_s for span in spans), default=0.0) - begin_s
