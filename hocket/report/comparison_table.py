"""A comparison for the terminal: the figures of a step, and the spans that differ most."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.report.columns import Column, number_column, text_column
from hocket.report.comparison import Comparison, OneSided, SpanDifference
from hocket.text import TimeUnit, counted, time_unit

_MEANINGS = {
    "waiting": "the processor runs nothing",
    "overlap": "it computes while its gradients or parameters travel",
}


def figures_columns(comparison: Comparison) -> list[Column]:
    """Step time, waiting, overlap and the busy time of each kind, per step."""
    figures = comparison.figures
    both = [value for figure in figures for value in (figure.predicted_s, figure.measured_s)]
    unit = time_unit(value for value in both if value is not None)
    return [
        text_column("Of a step", "Of a step", "", [figure.name for figure in figures]),
        _times("Predicted", [figure.predicted_s for figure in figures], unit),
        _times("Measured", [figure.measured_s for figure in figures], unit),
        number_column(
            "Ratio", "Ratio", "", "Measured over predicted.", [figure.ratio for figure in figures], 3
        ),
    ]


def figures_legend(comparison: Comparison) -> str:
    """Explanations of those figures whose name does not say it."""
    named = (figure.name for figure in comparison.figures if figure.name in _MEANINGS)
    return "; ".join(f"{name}: {_MEANINGS[name]}" for name in named)


def spans_columns(spans: Sequence[SpanDifference], *, wide: bool = False) -> list[Column]:
    """Durations of ``spans`` on both sides and, where ``wide``, their starts, in the order given."""
    found = {
        "Predicted": [span.predicted_duration_s for span in spans],
        "Measured": [span.measured_duration_s for span in spans],
        "Longer by": [span.duration_difference_s for span in spans],
        "Later by": [span.start_difference_s for span in spans],
    }
    if wide:
        found["Start, predicted"] = [span.predicted_start_s for span in spans]
        found["Start, measured"] = [span.measured_start_s for span in spans]
    unit = time_unit(abs(value) for values in found.values() for value in values)
    return [
        text_column("Kind", "Kind", "", [span.kind for span in spans]),
        text_column("Name", "Name", "", [span.name for span in spans]),
        *(_times(heading, values, unit) for heading, values in found.items()),
    ]


def matched_line(comparison: Comparison) -> str:
    """A line with the number of each side's names that both have."""
    ours, theirs = comparison.only_predicted.names, comparison.only_measured.names
    return f"matched: {len(comparison.spans)} of {ours} predicted and of {theirs} measured names"


def one_sided_lines(side: str, names: OneSided) -> list[str]:
    """A line for each reason that names are in the ``side`` timeline alone: their number and some of them."""
    lines = []
    for each in names.reasons:
        examples = ", ".join(f"{name} ({kind})" for kind, name in each.examples)
        more = ", ..." if each.count > len(each.examples) else ""
        named = f"only in the {side} timeline: {counted(each.count, 'name')}: {examples}{more}"
        lines.append(f"{named}; {each.reason}")
    return lines


def _times(heading: str, values_s: Sequence[float | None], unit: TimeUnit) -> Column:
    scaled = [None if value is None else value * unit.per_second for value in values_s]
    return number_column(heading, heading, unit.symbol, "", scaled)
