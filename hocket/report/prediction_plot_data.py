"""The numbers behind the pictures of a prediction's page, as plain data for its script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hocket.predictor.answer import name_of
from hocket.predictor.prediction import Prediction
from hocket.predictor.prediction_curves import cheapest, curves, fastest, saturation
from hocket.report.prediction_measured import MeasuredThroughput


def prediction_figure(
    rows: Sequence[Prediction], points: Sequence[MeasuredThroughput] = ()
) -> dict[str, Any]:
    """Each curve over the number of workers with what is drawn beside it, and where the axes end.

    ``low``, ``high``, ``lin``, ``cynthia``, ``cost`` (a million examples): None where rows have none.
    ``saturation``, ``cheapest``: a place in the curve, or None. ``top``: the highest throughput to show.
    """
    drawn = [_curve(curve, rows, points) for curve in curves(rows)]
    shown = [row.throughput_high or row.throughput for row in rows]
    shown += [value for row in rows for value in (row.lin, row.cynthia) if value is not None]
    shown += [point.throughput for point in points]
    return {"curves": drawn, "top": max(shown)}


def _curve(
    curve: Sequence[Prediction], rows: Sequence[Prediction], points: Sequence[MeasuredThroughput]
) -> dict[str, Any]:
    least, buy = curve[0], cheapest(rows)
    knee = saturation(curve) if fastest(curve) is None else None
    own = [point for point in points if point.servers == least.servers]
    return {
        "name": name_of(curve, rows),
        "workers": [row.workers for row in curve],
        "throughput": [row.throughput for row in curve],
        "low": _all(row.throughput_low for row in curve),
        "high": _all(row.throughput_high for row in curve),
        "ideal": [_ideal(row) for row in curve],
        "lin": _all(row.lin for row in curve),
        "cynthia": _all(row.cynthia for row in curve),
        "step_s": [row.step_s for row in curve],
        "bottleneck": [row.bottleneck for row in curve],
        "busy": [100 * row.bottleneck_utilization for row in curve],
        "cost": _all(None if row.cost_per_example is None else 1e6 * row.cost_per_example for row in curve),
        "saturation": _place(knee, curve),
        "cheapest": _place(buy, curve),
        "measured": {"workers": [p.workers for p in own], "throughput": [p.throughput for p in own]},
    }


def _ideal(row: Prediction) -> float | None:
    """The rate that all of the row's workers would reach alone, without a network."""
    return row.throughput / row.efficiency if row.efficiency else None


def _all(values: Any) -> list[float] | None:
    found = list(values)
    return None if None in found else found


def _place(row: Prediction | None, curve: Sequence[Prediction]) -> int | None:
    return next((i for i, each in enumerate(curve) if each is row), None)
