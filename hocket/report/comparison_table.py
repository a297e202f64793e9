"""A comparison for the terminal: the figures of a step, and the spans that differ most."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from hocket.report.comparison import Comparison, OneSided, SpanDifference
from hocket.report.table import UNDEFINED, TimeUnit, decimals_for, time_unit
from hocket.words import counted


def figures_table(comparison: Comparison) -> Table:
    """Step time, waiting, overlap and the busy time of each kind, per step."""
    figures = comparison.figures
    both = [value for figure in figures for value in (figure.predicted_s, figure.measured_s)]
    unit = time_unit(value for value in both if value is not None)
    predicted = _seconds([figure.predicted_s for figure in figures], unit)
    measured = _seconds([figure.measured_s for figure in figures], unit)
    table = _table("", ("Predicted", unit), ("Measured", unit), ("Ratio", None))
    for figure, *cells in zip(figures, predicted, measured, strict=True):
        ratio = UNDEFINED if figure.ratio is None else f"{figure.ratio:.3f}"
        table.add_row(figure.name, *cells, ratio, style="bold" if figure.name == "step" else "")
    return table


def spans_table(spans: Sequence[SpanDifference]) -> Table:
    """Start within the step and duration of each of ``spans``, on both sides, in the order given."""
    unit = time_unit(abs(value) for span in spans for value in _times(span))
    headings = ("Start, predicted", "Measured", "Later by", "Duration, predicted", "Measured", "Longer by")
    table = _table("Kind", "Name", *((heading, unit) for heading in headings))
    columns = [_seconds(column, unit) for column in zip(*map(_times, spans), strict=True)]
    for span, *cells in zip(spans, *columns, strict=True):
        # Text, not markup: a name may hold square brackets.
        table.add_row(span.kind, Text(span.name), *cells)
    return table


def matched_line(comparison: Comparison) -> str:
    """How many of each side's names both have."""
    ours, theirs = comparison.only_predicted.names, comparison.only_measured.names
    return f"matched: {len(comparison.spans)} of {ours} predicted and of {theirs} measured names"


def one_sided_lines(side: str, names: OneSided) -> list[str]:
    """How many names only the ``side`` timeline has, some of them, and why; a line for each reason."""
    lines = []
    for each in names.reasons:
        examples = ", ".join(f"{name} ({kind})" for kind, name in each.examples)
        more = ", ..." if each.count > len(each.examples) else ""
        named = f"only in the {side} timeline: {counted(each.count, 'name')}: {examples}{more}"
        lines.append(f"{named}; {each.reason}")
    return lines


def _times(span: SpanDifference) -> tuple[float, ...]:
    return (
        span.predicted_start_s,
        span.measured_start_s,
        span.start_difference_s,
        span.predicted_duration_s,
        span.measured_duration_s,
        span.duration_difference_s,
    )


def _seconds(values_s: Sequence[float | None], unit: TimeUnit) -> list[str]:
    scaled = [None if value is None else value * unit.per_second for value in values_s]
    decimals = decimals_for(value for value in scaled if value is not None)
    return [UNDEFINED if value is None else f"{value:z.{decimals}f}" for value in scaled]


def _table(*headings: str | tuple[str, TimeUnit | None]) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for heading in headings:
        if isinstance(heading, str):
            table.add_column(heading, overflow="fold")
        else:
            name, unit = heading
            table.add_column(Text(name + (f"\n[{unit.symbol}]" if unit else "\n")), justify="right")
    return table
