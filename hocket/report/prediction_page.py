"""The page of a prediction: throughput over workers, what it says, and what was measured beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hocket.columns import Column, percent_column, text_column
from hocket.errors import HocketError
from hocket.predictor.answer import caveats, name_of, verdicts
from hocket.predictor.prediction import Prediction
from hocket.predictor.prediction_curves import cheapest, curves, fastest, saturation
from hocket.predictor.prediction_notes import base_note
from hocket.report.alternatives import prediction_texts
from hocket.report.html_page import Tile, render_page
from hocket.report.prediction_measured import MeasuredThroughput, ModelError, model_errors
from hocket.report.prediction_plot_data import prediction_figure
from hocket.report.prediction_table import prediction_columns, saturated_rows
from hocket.text import counted, four_digits, rate_text, time_unit


class PageAnswer(NamedTuple):
    """A page's answers, a line of what they rest on, and the next command."""

    lines: Sequence[str]
    assumptions: str = ""
    following: str = ""


def render_prediction(
    rows: Sequence[Prediction],
    *,
    title: str = "Predicted throughput",
    setup: str = "",
    caveat: str = "",
    points: Sequence[MeasuredThroughput] = (),
    answer: PageAnswer | None = None,
) -> str:
    """The page of ``rows``: answers, curves over the number of workers, a table, and the busiest resource.

    ``setup`` says in one line what was predicted for, ``caveat`` how far the step may be off; ``points`` are
    measured configurations among ``rows``. ``answer``: in place of what ``rows`` alone tell.

    Raises
    ------
    HocketError
        Without any row.
    """
    if not rows:
        raise HocketError("a page of predictions needs at least one row")
    held, errors = caveats(rows), model_errors(rows, points)
    data = {
        "unit": time_unit(row.step_s for row in rows)._asdict(),
        "prediction": prediction_figure(rows, points),
    }
    return render_page(
        "prediction.html",
        data,
        title=title,
        setup=setup,
        tiles=_tiles(rows, errors),
        answer=answer or PageAnswer(verdicts(rows)),
        base=base_note(rows, has_efficiency=True),
        caveats=[*(caveat.split("; ") if caveat else []), *held],
        columns=prediction_columns(rows, points),
        highlighted=saturated_rows(rows),
        errors=_error_columns(errors) if errors else [],
        priced=cheapest(rows) is not None,
        has_models=any(row.lin is not None for row in rows),
        has_intervals=any(row.throughput_low is not None for row in rows),
        texts=prediction_texts(rows),
        with_servers=any(row.servers for row in rows),
        num_points=counted(len(points), "measured point"),
    )


def _error_columns(errors: Sequence[ModelError]) -> list[Column]:
    """Each model's errors."""
    return [
        text_column("Model", [error.model for error in errors]),
        percent_column("Mean error", [error.mean for error in errors]),
        percent_column("Largest", [error.largest for error in errors]),
    ]


def _tiles(rows: Sequence[Prediction], errors: Sequence[ModelError]) -> list[Tile]:
    """The answers for the curve that gets highest, the cheapest configuration, and how far off it all is."""
    curve = max(curves(rows), key=lambda each: max(row.throughput for row in each))
    top, knee = fastest(curve), saturation(curve)
    row = top or knee or curve[-1]
    grows = "Still grows at" if len(curve) > 1 else "Predicted for"
    label = "Fastest with" if top else "Saturates at" if knee else grows
    rate = rate_text(row.throughput)
    of_several = f"{name_of(curve, rows)}, " if len(curves(rows)) > 1 else ""
    busy = f"in use {row.bottleneck_utilization:.1%} of the time, else waiting"
    tiles = [
        Tile(label, counted(row.workers, "worker"), of_several + rate),
        Tile("Busiest there", row.bottleneck, busy),
    ]
    if row.speedup is not None and row.efficiency is not None:
        note = f"over one worker alone, efficiency {row.efficiency:.0%}"
        tiles.append(Tile("Speed-up", f"{row.speedup:.2f}x", note))
    buy = cheapest(rows)
    if buy is not None and buy.cost_per_example is not None:
        servers = f" and {counted(buy.servers, 'server')}" if buy.servers else ""
        note = f"per million examples, {counted(buy.workers, 'worker')}{servers}"
        tiles.append(Tile("Cheapest", four_digits(1e6 * buy.cost_per_example), note))
    if errors:
        note = ", ".join(f"{error.model} {error.mean:.1%}" for error in errors[1:])
        tiles.append(Tile("Mean error", f"{errors[0].mean:.1%}", note or "against what was measured"))
    return tiles
