"""The page of a comparison: a step predicted and measured, what differs, and what only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hocket.columns import led_by
from hocket.graph.timeline import Span, Timeline
from hocket.graph.timeline_steps import cut_into_steps
from hocket.origin import Origin
from hocket.report.alternatives import busy_columns, sentences_text, timeline_text
from hocket.report.comparison import Comparison, compare
from hocket.report.comparison_table import figures_columns, matched_line, spans_columns
from hocket.report.html_page import Tile, network_line, render_page
from hocket.report.matching import with_common_names
from hocket.report.step_plot_data import TimelinePanel, timeline_figure
from hocket.text import TimeUnit, counted, time_text, time_unit

_MOST_SPANS = 1000  # in the table
_FIRST = ("Name", "Kind", "Longer by", "Later by")


def render_comparison(
    predicted: Timeline,
    measured: Timeline,
    *,
    origins: Sequence[Origin | None] = (),
    title: str = "Predicted and measured",
) -> str:
    """The page of two timelines of the same training.

    Raises
    ------
    HocketError
        When a timeline has no worker with a forward operation.
    """
    found = compare(predicted, measured)
    sides = with_common_names(predicted, measured)
    unit = time_unit(s for figure in found.figures for s in (figure.predicted_s, figure.measured_s) if s)
    panels = [
        TimelinePanel(f"{name}: {side.title}", name, _one_step(side, found.predicted.anchor))
        for name, side in zip(("Predicted", "Measured"), sides, strict=True)
    ]
    data = {
        "unit": unit._asdict(),
        "figures": [_figure_data(figure, unit) for figure in found.figures],
        "timelines": timeline_figure(panels, unit),
    }
    return render_page(
        "comparison.html",
        data,
        origins=origins,
        title=title,
        setup=_setup(found, origins),
        tiles=_tiles(found, unit),
        figure_columns=figures_columns(found),
        span_columns=led_by(spans_columns(found.spans[:_MOST_SPANS], unit), *_FIRST),
        left_out=max(0, len(found.spans) - _MOST_SPANS),
        matched=matched_line(found),
        alone=(("predicted", found.only_predicted), ("measured", found.only_measured)),
        same_start=found.predicted.anchor == found.measured.anchor,
        figures_text=_figures_text(found, unit),
        timeline_text=timeline_text(panels, unit),
        busy=busy_columns(panels),
    )


def _setup(found: Comparison, origins: Sequence[Origin | None]) -> str:
    sides = [
        f"{side.title}: {counted(side.workers, 'worker')}, {counted(side.steps, 'step')}"
        for side in (found.predicted, found.measured)
    ]
    return " · ".join([*sides, network_line(origins)])


def _tiles(found: Comparison, unit: TimeUnit) -> list[Tile]:
    figures = {figure.name: figure for figure in found.figures}
    step, waiting = figures["step"], figures["waiting"]
    ours_s, theirs_s = step.predicted_s or 0.0, step.measured_s or 0.0
    named = found.only_predicted.names
    tiles = [
        Tile("Predicted step", time_text(ours_s, unit), found.predicted.title),
        Tile("Measured step", time_text(theirs_s, unit), found.measured.title),
    ]
    if step.ratio is not None:
        tiles.append(Tile("Measured over predicted", f"{step.ratio:.3f}", f"{100 * (step.ratio - 1):+.1f}%"))
    waits = [time_text(second or 0.0, unit) for second in (waiting.predicted_s, waiting.measured_s)]
    tiles.append(Tile("Waiting", waits[1], f"predicted {waits[0]}"))
    tiles.append(Tile("Matched", f"{len(found.spans)} of {named}", "names of the prediction"))
    return tiles


def _figure_data(figure: Any, unit: TimeUnit) -> dict[str, Any]:
    values = {"predicted": figure.predicted_s, "measured": figure.measured_s}
    return {"name": figure.name} | {
        side: None if second is None else second * unit.per_second for side, second in values.items()
    }


def _figures_text(found: Comparison, unit: TimeUnit) -> str:
    def told(second: float | None) -> str:
        return "none" if second is None else time_text(second, unit)

    return sentences_text(
        [
            f"{each.name}: predicted {told(each.predicted_s)}, measured {told(each.measured_s)}"
            for each in found.figures
        ]
    )


def _one_step(timeline: Timeline, anchor: str) -> Timeline:
    """The step of the first worker whose length is the middle one, what crosses its ends cut there."""
    side = cut_into_steps(timeline, anchor=anchor)
    edges_s = next(iter(side.edges_s.values()))
    lengths_s = edges_s[1:] - edges_s[:-1]
    chosen = sorted(range(len(lengths_s)), key=lambda i: lengths_s[i])[(len(lengths_s) - 1) // 2]
    begin_s, end_s = float(edges_s[chosen]), float(edges_s[chosen + 1])
    spans: list[Span] = [
        msgspec.structs.replace(
            span, start_s=max(span.start_s, begin_s) - begin_s, end_s=min(span.end_s, end_s) - begin_s
        )
        for own in side.spans.values()
        for span in own
        if span.start_s < end_s and span.end_s > begin_s
    ]
    spans.sort(key=lambda span: span.start_s)
    return Timeline(title="a step", lanes=timeline.lanes, spans=tuple(spans))
