"""The rows of a prediction as a table, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.predictor.answer import curves, fastest, saturation
from hocket.predictor.prediction import Prediction
from hocket.report.columns import Column, number_column, text_column
from hocket.report.prediction_measured import MeasuredThroughput
from hocket.report.ranking_table import UNDEFINED, RankingCell, Value, decimals_for
from hocket.text import TimeUnit, rate_period, time_unit

_SHORT = {"Throughput": "Rate"}
_LEFT_OUT = frozenset({"Efficiency", "Busy", "lin", "cynthia"})
_SELF_EVIDENT = frozenset({"Workers", "Servers", "Throughput", "Step"})
_BUSIEST = "What is in use for most of the time, and for how much of it."


def prediction_columns(rows: Sequence[Prediction], points: Sequence[MeasuredThroughput] = ()) -> list[Column]:
    """The columns of ``rows``, in the order given; what no row has gets none. Of ``points``: the mean."""
    unit = time_unit(row.step_s for row in rows)
    period = rate_period([row.throughput for row in rows])
    by = f"1/{period.symbol}"
    rate = decimals_for(row.throughput / period.per_second for row in rows)
    measured = [_mean([p.throughput for p in points if p[:2] == (row.workers, row.servers)]) for row in rows]

    def rates(heading: str, meaning: str, per_second: Sequence[float | None]) -> Column:
        values = [None if value is None else value / period.per_second for value in per_second]
        return number_column(heading, _SHORT.get(heading, heading), by, meaning, values, rate)

    per_million = [None if row.cost_per_example is None else 1e6 * row.cost_per_example for row in rows]
    efficiencies = [_percent(row.efficiency) for row in rows]
    busy = [100 * row.bottleneck_utilization for row in rows]
    errors = [_percent(row.throughput / m - 1) if m else None for row, m in zip(rows, measured, strict=True)]
    columns = [
        number_column("Workers", "Workers", "", "Processes that compute.", [row.workers for row in rows], 0),
        number_column(
            "Servers", "Servers", "", "Parameter servers.", [row.servers or None for row in rows], 0
        ),
        rates(
            "Throughput",
            "Examples over all workers.",
            [row.throughput for row in rows],
        ),
        Column(
            *("95% interval", "± 95%", by, "Half the confidence interval over repeated seeds."),
            [_half_width(row, rate, period) for row in rows],
        ),
        rates("Measured", "Mean of the measured points.", measured),
        number_column("Error", "Error", "%", "Predicted over measured, less 1.", errors, 1),
        number_column(
            *("Speed-up", "Speed-up", "", "Throughput over one worker's alone, without a network."),
            [row.speedup for row in rows],
            2,
        ),
        number_column(
            "Efficiency", "Eff.", "%", "Throughput over what all workers could reach alone.", efficiencies, 1
        ),
        number_column(
            *("Step", "Step", unit.symbol, "Mean time that a worker takes for a step."),
            [row.step_s * unit.per_second for row in rows],
        ),
        text_column(
            *("Bottleneck", "Bottleneck", "The resource that is busy longest."),
            [row.bottleneck for row in rows],
        ),
        number_column("Busy", "Busy", "%", "For how much of the time it is.", busy, 1),
        rates("lin", "Throughput by Lin et al.'s published model, to compare.", [row.lin for row in rows]),
        rates("cynthia", "Throughput by Cynthia, another one.", [row.cynthia for row in rows]),
        number_column(
            "Cost", "Cost", "/1e6", "In the currency of the prices, a million examples.", per_million
        ),
    ]
    return [column for column in columns if any(cell.value is not None for cell in column.cells)]


def _half_width(row: Prediction, decimals: int, period: TimeUnit) -> RankingCell:
    if row.throughput_low is None or row.throughput_high is None:
        return RankingCell(UNDEFINED, None)
    half: Value = (row.throughput_high - row.throughput_low) / 2 / period.per_second
    return RankingCell(f"±{half:.{decimals}f}", half)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def saturated_rows(rows: Sequence[Prediction]) -> list[bool]:
    """Of each row, whether its curve saturates there."""
    knees = {id(saturation(curve)) for curve in curves(rows) if fastest(curve) is None}
    return [id(row) in knees for row in rows]


def narrow_columns(rows: Sequence[Prediction], points: Sequence[MeasuredThroughput] = ()) -> list[Column]:
    """The columns that answer: throughput, what it is worth, a step, and what is busiest; costs if any."""
    found = []
    for column in prediction_columns(rows, points):
        if column.heading == "Throughput":
            found.append(column._replace(short=f"Examples{column.unit[1:]}", unit=""))
        elif column.heading == "Bottleneck":
            shares = [f"{row.bottleneck} {row.bottleneck_utilization:.0%}" for row in rows]
            found.append(text_column("Busiest", "Busiest", _BUSIEST, shares))
        elif column.heading not in _LEFT_OUT:
            found.append(column)
    return found


def terms(columns: Sequence[Column]) -> list[Column]:
    """Those of ``columns`` whose heading alone does not say what they hold."""
    return [column for column in columns if column.heading not in _SELF_EVIDENT]
