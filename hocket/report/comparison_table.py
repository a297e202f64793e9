"""A comparison for the terminal: the figures of a step, and the spans that differ most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hocket.columns import Column, number_column, text_column, time_column
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
    columns = [
        text_column("Of a step", [figure.name for figure in figures], "The part of a step that is timed."),
        time_column("Predicted", [figure.predicted_s for figure in figures], unit, "As simulated."),
        time_column("Measured", [figure.measured_s for figure in figures], unit, "In training."),
        number_column("Ratio", [figure.ratio for figure in figures], "Measured over predicted.", decimals=3),
    ]
    return [column.as_clear() for column in columns]


def figures_legend(comparison: Comparison) -> str:
    """Explanations of those figures whose name does not say it."""
    named = (figure.name for figure in comparison.figures if figure.name in _MEANINGS)
    return "; ".join(f"{name}: {_MEANINGS[name]}" for name in named)


def spans_columns(spans: Sequence[SpanDifference], unit: TimeUnit | None = None) -> list[Column]:
    """Durations of ``spans`` on both sides and their starts, in the order given; in the unit that fits."""
    durations = [(span.predicted_duration_s, span.measured_duration_s) for span in spans]
    # Sums of the same times in another order differ by a rounding, which is no difference to read.
    times_s = (time_s for span in spans for time_s in (span.measured_start_s, span.measured_duration_s))
    rounding_s = 1e-9 * max(times_s, default=0.0)
    apart = [
        tuple(0.0 if abs(time_s) <= rounding_s else time_s for time_s in pair)
        for pair in ((span.duration_difference_s, span.start_difference_s) for span in spans)
    ]
    unit = unit or time_unit(abs(time_s) for pair in (*durations, *apart) for time_s in pair)

    def times(heading: str, times_s: Iterable[float], meaning: str, short: str = "") -> Column:
        return time_column(heading, list(times_s), unit, meaning, short=short).as_clear()

    return [
        text_column("Kind", [span.kind for span in spans], "The kind of operation.").as_clear(),
        text_column("Name", [span.name for span in spans], "An operation, a piece or a transfer.").as_clear(),
        times("Duration, predicted", (pair[0] for pair in durations), "Of a step.", "Predicted"),
        times("Duration, measured", (pair[1] for pair in durations), "Of a step.", "Measured"),
        times("Longer by", (pair[0] for pair in apart), "Measured less predicted duration."),
        times("Later by", (pair[1] for pair in apart), "Measured less predicted start."),
        times("Start, predicted", (each.predicted_start_s for each in spans), "After the step's.").as_wide(),
        times("Start, measured", (each.measured_start_s for each in spans), "After the step's.").as_wide(),
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
