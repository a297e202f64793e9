"""The rows of a prediction as a table, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.columns import (
    Cell,
    Column,
    Value,
    known,
    narrow,
    number_column,
    percent_column,
    text_column,
    time_column,
)
from hocket.predictor.prediction import Prediction
from hocket.predictor.prediction_curves import curves, fastest, saturation
from hocket.predictor.prediction_range import RANGE_WORDS
from hocket.report.prediction_measured import MeasuredThroughput
from hocket.text import UNDEFINED, TimeUnit, decimals_for, number_text, rate_period, rate_scale, time_unit

_BUSIEST = "The resource in use for most of the time, and for how much of it; for the rest it is idle."
_TURNS = " Both ways of a link together, where it pulls and pushes in turn: at 50% each it is always in use."


def prediction_columns(rows: Sequence[Prediction], points: Sequence[MeasuredThroughput] = ()) -> list[Column]:
    """The columns of ``rows``, in the order given; what no row has gets none. Of ``points``: the mean."""
    unit = time_unit(row.step_s for row in rows)
    period, prefix = _rate_unit(rows)
    by = f"{prefix or 1}/{period.symbol}"
    rate = decimals_for(row.throughput / period.per_second for row in rows)
    measured = [_mean([p.throughput for p in points if p[:2] == (row.workers, row.servers)]) for row in rows]

    def rates(heading: str, per_second: Sequence[float | None], meaning: str, short: str = "") -> Column:
        values = [None if value is None else value / period.per_second for value in per_second]
        return number_column(heading, values, meaning, unit=by, short=short, decimals=rate)

    per_million = [None if row.cost_per_example is None else 1e6 * row.cost_per_example for row in rows]
    errors = [row.throughput / m - 1 if m else None for row, m in zip(rows, measured, strict=True)]
    columns = [
        number_column(
            "Workers", [row.workers for row in rows], "Processes that compute.", decimals=0
        ).as_clear(),
        number_column(
            "Servers", [row.servers or None for row in rows], "Parameter servers.", decimals=0
        ).as_clear(),
        rates(
            "Throughput", [row.throughput for row in rows], "Examples over all workers.", "Rate"
        ).as_clear(),
        _interval_column(rows, rate, period, by),
        rates("Measured", measured, "Mean of the measured points."),
        percent_column("Error", errors, "Predicted over measured, less 1."),
        number_column(
            "Speed-up",
            [row.speedup for row in rows],
            "Throughput over one worker's alone, without a network.",
            decimals=2,
        ).as_clear(),  # a remark says over which worker
        time_column(
            "Step", [row.step_s for row in rows], unit, "Mean time that a worker takes for a step."
        ).as_clear(),
        _range_column(rows, rate, period, by),
        percent_column(
            "Efficiency",
            [row.efficiency for row in rows],
            "Throughput over what all workers could reach alone.",
            short="Eff.",
        )
        .as_clear()
        .as_wide(),
        text_column("Busiest", [row.bottleneck for row in rows], "The resource in use for most of the time."),
        percent_column(
            "In use",
            [row.bottleneck_utilization for row in rows],
            "For how much of the time it is; for the rest it is idle.",
        ).as_wide(),
        percent_column(
            "Other way",
            [row.opposite_utilization if row.takes_turns else None for row in rows],
            "The same of the links' other direction, where pulls and pushes take turns.",
        ).as_wide(),
        Column(
            "Pattern",
            [Cell(", ".join(row.patterns) or UNDEFINED, ", ".join(row.patterns) or None) for row in rows],
            "Of all-reduces, that of most bytes first.",
        ).as_wide(),
        rates(
            "lin", [row.lin for row in rows], "Throughput by Lin et al.'s published model, to compare."
        ).as_wide(),
        rates("cynthia", [row.cynthia for row in rows], "Throughput by Cynthia, another one.").as_wide(),
        number_column("Cost", per_million, "In the currency of the prices, a million examples.", unit="/1e6"),
    ]
    return known(columns)


def _rate_unit(rows: Sequence[Prediction]) -> tuple[TimeUnit, str]:
    """The period that rates of ``rows`` are read by, in thousands or millions where they are large."""
    period = rate_period([row.throughput for row in rows])
    prefix, scale = rate_scale(row.throughput / period.per_second for row in rows)
    return period._replace(per_second=scale * period.per_second), prefix


def _range_column(rows: Sequence[Prediction], decimals: int, period: TimeUnit, by: str) -> Column:
    """The range of throughput by how far computing may be off."""
    sources = dict.fromkeys(RANGE_WORDS[row.range_of] for row in rows if row.range_of is not None)
    meaning = (
        f"Of throughput, if computing takes more or less time, {' or '.join(sources)}; the network is taken"
        " as exact."
    )
    return Column("Range", [_range_cell(row, decimals, period) for row in rows], meaning, by)


def _range_cell(row: Prediction, decimals: int, period: TimeUnit) -> Cell:
    if row.throughput_least is None or row.throughput_most is None:
        return Cell(UNDEFINED, None)
    low, high = row.throughput_least / period.per_second, row.throughput_most / period.per_second
    return Cell(f"{number_text(low, decimals)}–{number_text(high, decimals)}", low)


def _interval_column(rows: Sequence[Prediction], decimals: int, period: TimeUnit, by: str) -> Column:
    """The confidence interval over seeds; the terminal has it beside a range with ``--wide`` alone."""
    column = Column(
        "95% interval",
        [_half_width(row, decimals, period) for row in rows],
        "Half the confidence interval over repeated seeds.",
        by,
        "± 95%",
    )
    return column if all(row.throughput_most is None for row in rows) else column.as_wide()


def _half_width(row: Prediction, decimals: int, period: TimeUnit) -> Cell:
    if row.throughput_low is None or row.throughput_high is None:
        return Cell(UNDEFINED, None)
    half: Value = (row.throughput_high - row.throughput_low) / 2 / period.per_second
    return Cell(f"±{half:.{decimals}f}", half)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def saturated_rows(rows: Sequence[Prediction]) -> list[bool]:
    """Of each row, whether its curve saturates there."""
    knees = {id(saturation(curve)) for curve in curves(rows) if fastest(curve) is None}
    return [id(row) in knees for row in rows]


def narrow_columns(rows: Sequence[Prediction], points: Sequence[MeasuredThroughput] = ()) -> list[Column]:
    """The columns that answer: throughput, what it is worth, a step, and what is busiest; costs if any."""
    found = []
    for column in narrow(prediction_columns(rows, points)):
        if column.heading == "Throughput":
            prefix, _, period = column.unit.partition("/")
            unit = "" if prefix == "1" else prefix
            found.append(column._replace(short=f"Examples/{period}", unit=unit))
        elif column.heading == "Busiest":
            turns = _TURNS if any(row.takes_turns for row in rows) else ""
            found.append(text_column("Busiest", [row.busiest for row in rows], f"{_BUSIEST}{turns}"))
        else:
            found.append(column)
    return found
