"""The page of ``bench predict``: measured against predicted throughput, and the errors."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.bench.replay.accuracy import Accuracy
from hocket.bench.replay.accuracy_statistics import AccuracyRow
from hocket.bench.replay.accuracy_table import group_columns, row_columns
from hocket.columns import Column, led_by
from hocket.report.html_page import Tile, render_page
from hocket.text import capitalized, counted

_FIRST = ("step", "policy", "workers", "error", "measured/s", "predicted/s")


def render_accuracy(accuracy: Accuracy) -> str:
    """A picture of every row, the errors by group, and a table of all rows."""
    request, groups = accuracy.request, accuracy.groups
    every = groups[-1]
    worst = max(accuracy.rows, key=lambda row: abs(row.error))
    setup = (
        f"an emulated cluster with links of {request.rate_bps / 1e9:g} Gbit/s,"
        f" measured {accuracy.network.bandwidth_bps / 1e9:.4g} Gbit/s"
        f" · all parameters {request.transfer_s:g} s"
        f" · rho {request.rho:g} · {request.num_steps} steps, {request.skip} of them skipped"
    )
    tiles = [
        Tile("Mean error", f"{every.mean_error:.1%}", f"over {every.rows} rows"),
        Tile("Largest error", f"{worst.error:+.1%}", _row_name(worst)),
    ]
    return render_page(
        "accuracy.html",
        {"rows": [_point(row) for row in accuracy.rows]},
        title="Predicted against measured",
        setup=setup,
        tiles=tiles,
        text=(
            f"{counted(every.rows, 'row')}: the mean error is {every.mean_error:.1%}, the largest"
            f" {worst.error:+.1%} ({_row_name(worst)})."
        ),
        group_columns=_with_page_headings(group_columns(groups)),
        row_columns=_with_page_headings(led_by(row_columns(accuracy.rows), *_FIRST)),
    )


def _with_page_headings(columns: Sequence[Column]) -> list[Column]:
    """The terminal's ``columns`` with headings as pages have them."""
    return [column._replace(heading=capitalized(column.heading)) for column in columns]


def _row_name(row: AccuracyRow) -> str:
    servers = f", {counted(row.servers, 'server')}" if row.servers else ""
    transport = ", gRPC" if row.transport == "grpc" else ""
    return f"{row.step}, {row.policy}, {row.mode}, {counted(row.workers, 'worker')}{servers}{transport}"


def _point(row: AccuracyRow) -> dict[str, float | str | None]:
    return {
        "name": _row_name(row),
        "step": row.step,
        "measured": row.measured,
        "predicted": row.predicted,
        "lin": row.lin,
        "cynthia": row.cynthia,
        "error": row.error,
    }
