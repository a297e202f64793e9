"""Results of a step as a table for the terminal: a few columns that compare, or all of them."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.graph.result import ResultRow
from hocket.report.best_result import ranked
from hocket.report.columns import Column
from hocket.report.ranking_table import RankingCell, ranking_table
from hocket.report.result_files import Entry
from hocket.report.verdicts import usual_row

_LEFT_OUT = frozenset({"95th pct.", "Throughput", "Overlap", "Utilization", "rho", "Straggler", "Bound"})
_SELF_EVIDENT = frozenset({"Model", "Architecture", "Workers", "Servers", "Policy", "Step time"})


def step_columns(rows: Sequence[ResultRow], *, wide: bool = False) -> list[Column]:
    """The columns of ``rows``, best first, with how much longer each step is than the usual policy's."""
    order = best_first(rows)
    ranking = ranking_table(order)
    columns = [
        Column(column.heading, column.short, unit, column.meaning, [cells[k] for cells in ranking.rows])
        for k, (column, unit) in enumerate(zip(ranking.columns, ranking.units, strict=True))
        if wide or column.heading not in _LEFT_OUT
    ]
    usual = usual_row(order)
    if usual is not None and usual.iteration_s > 0:
        apart = [100 * (row.iteration_s / usual.iteration_s - 1) for row in order]
        name = f"Against {usual.policy}"
        meaning = "How much longer (+) or shorter (-) a step is."
        step = next(k for k, column in enumerate(columns) if column.heading == "Step time")
        columns.insert(step + 1, Column(name, name, "%", meaning, [_signed(value) for value in apart]))
    return columns


def best_first(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """``rows`` in the order of their table."""
    return [entry.row for entry in ranked(Entry(row) for row in rows)]


def terms(columns: Sequence[Column]) -> list[Column]:
    """Those of ``columns`` whose heading alone does not say what they hold."""
    return [column for column in columns if column.heading not in _SELF_EVIDENT]


def _signed(percent: float) -> RankingCell:
    text = f"{percent:+z.1f}"
    return RankingCell("0.0" if text == "+0.0" else text, percent)
