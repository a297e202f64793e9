"""The rows of a prediction as a table, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hocket.predictor import Prediction
from hocket.predictor.answer import curves, saturation
from hocket.report.columns import Column, number_column, terminal_columns, text_column
from hocket.report.prediction_measured import Point
from hocket.report.table import UNDEFINED, Cell, Value, decimals_for, time_unit


def prediction_columns(rows: Sequence[Prediction], points: Sequence[Point] = ()) -> list[Column]:
    """The columns of ``rows``, in the order given; what no row has gets none. Of ``points``: the mean."""
    unit = time_unit(row.step_s for row in rows)
    rate = decimals_for(row.throughput for row in rows)
    measured = [_mean([p.throughput for p in points if p[:2] == (row.workers, row.servers)]) for row in rows]
    per_million = [None if row.cost_per_example is None else 1e6 * row.cost_per_example for row in rows]
    efficiencies = [_percent(row.efficiency) for row in rows]
    busy = [100 * row.bottleneck_utilization for row in rows]
    errors = [_percent(row.throughput / m - 1) if m else None for row, m in zip(rows, measured, strict=True)]
    columns = [
        number_column("Workers", "Workers", "", "Processes that compute.", [row.workers for row in rows], 0),
        number_column(
            "Servers", "Servers", "", "Parameter servers.", [row.servers or None for row in rows], 0
        ),
        number_column(
            *("Throughput", "Rate", "1/s", "Examples a second over all workers."),
            [row.throughput for row in rows],
            rate,
        ),
        Column(
            *(
                "95% interval",
                "± 95%",
                "1/s",
                "Half the confidence interval over repeated seeds.",
            ),
            [_half_width(row, rate) for row in rows],
        ),
        number_column("Measured", "Measured", "1/s", "Mean of the measured points.", measured, rate),
        number_column("Error", "Error", "%", "Predicted over measured, less 1.", errors, 1),
        number_column(
            *("Speed-up", "x", "", "Throughput over one worker's alone, without a network."),
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
        number_column(
            "lin", "lin", "1/s", "Throughput by Lin et al.'s model.", [row.lin for row in rows], rate
        ),
        number_column(
            "cynthia", "cynthia", "1/s", "Throughput by Cynthia.", [row.cynthia for row in rows], rate
        ),
        number_column(
            "Cost", "Cost", "/1e6", "In the currency of the prices, a million examples.", per_million
        ),
    ]
    return [column for column in columns if any(cell.value is not None for cell in column.cells)]


def _half_width(row: Prediction, decimals: int) -> Cell:
    if row.throughput_low is None or row.throughput_high is None:
        return Cell(UNDEFINED, None)
    half: Value = (row.throughput_high - row.throughput_low) / 2
    return Cell(f"±{half:.{decimals}f}", half)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def saturated_rows(rows: Sequence[Prediction]) -> list[bool]:
    """Of each row, whether its curve saturates there."""
    knees = {id(saturation(curve)) for curve in curves(rows)}
    return [id(row) in knees for row in rows]


def prediction_table(rows: Sequence[Prediction], points: Sequence[Point] = ()) -> Table:
    """``rows`` for the terminal; those where throughput saturates stand out."""
    return terminal_columns(prediction_columns(rows, points), saturated_rows(rows))
