"""The ranking as a table: its columns, headings and number formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from hocket.graph.result import ResultRow
from hocket.report.best_result import over_bound, setup_of
from hocket.text import TimeUnit, rate_period, time_unit

UNDEFINED = "–"

Format = Literal["text", "count", "time", "rate", "ratio", "percent"]
Value = str | int | float | None


class RankingColumn(NamedTuple):
    """One column: its name, its name in the terminal, how its values are written, and what they mean."""

    heading: str
    short: str
    format: Format
    value: Callable[[ResultRow], Value]
    meaning: str

    @property
    def numeric(self) -> bool:
        """True if its cells line up on the right."""
        return self.format != "text"


_SETUP = (
    RankingColumn("Model", "Model", "text", lambda row: row.model, "The network that was trained."),
    RankingColumn("Architecture", "Architecture", "text", lambda row: row.architecture, "ps or allreduce."),
    RankingColumn("Workers", "Workers", "count", lambda row: row.workers, "Processes that compute."),
    RankingColumn(
        "Servers", "Servers", "count", lambda row: row.servers, "Processes that hold the parameters."
    ),
)
_POLICY = RankingColumn("Policy", "Policy", "text", lambda row: row.title, "How transfers are ordered.")


def _mean_overlap(row: ResultRow) -> float | None:
    return row.overlap if min(row.communication_s, row.compute_s) > 0 else None


_FIGURES = (
    RankingColumn(
        "Step time", "Step", "time", lambda row: row.iteration_s, "Mean time of one training step."
    ),
    RankingColumn(
        "95th pct.", "p95", "time", lambda row: row.iteration_p95_s, "19 of 20 steps are no longer."
    ),
    RankingColumn("Throughput", "Rate", "rate", lambda row: row.throughput, "Examples over all workers."),
    RankingColumn(
        *("Overlap", "Overlap", "ratio", _mean_overlap),
        "1: all of the shorter one of communication (N) and computation (C) is hidden.",
    ),
    RankingColumn("Utilization", "Util.", "percent", lambda row: row.utilization, "Share spent computing."),
    RankingColumn("rho", "rho", "ratio", lambda row: row.rho, "N / C: communication over computation."),
    RankingColumn(
        *("Straggler", "Strag.", "percent", lambda row: row.straggler_fraction),
        "How long a worker waits for the last one, of a step.",
    ),
    RankingColumn(
        *("Bound", "Bound", "time", lambda row: row.bound_s),
        "No order of as many transfers has a shorter mean step time.",
    ),
    RankingColumn(
        *("Over bound", "Over bound", "percent", over_bound),
        "How far a step is above the least that any order of as many transfers can reach.",
    ),
)


def decimals_for(values: Iterable[float]) -> int:
    """The number of decimals that give the largest of ``values`` four significant digits, at most three."""
    largest = max((abs(value) for value in values), default=0.0)
    return 3 - sum(largest >= limit for limit in (10.0, 100.0, 1000.0))


def number_text(value: float, decimals: int) -> str:
    """A number with so many decimals; one that would keep fewer than two digits, in three digits of its own.

    Beside a step of an hour, one of a millisecond would read 0.
    """
    if value and abs(value) < 9.95 * 10.0**-decimals:
        return f"{value:.3g}"
    return f"{value:z.{decimals}f}"


def time_text(seconds: float, unit: TimeUnit) -> str:
    """A time in ``unit``, to four digits or so."""
    value = seconds * unit.per_second
    return f"{number_text(value, decimals_for([value]))} {unit.symbol}"


class RankingCell(NamedTuple):
    """One cell: the text to show and the value to sort by."""

    text: str
    value: Value


class Ranking(NamedTuple):
    """The table's columns, the unit of each (or nothing), and its rows, best first."""

    columns: tuple[RankingColumn, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[RankingCell, ...], ...]


def ranking_table(rows: Sequence[ResultRow]) -> Ranking:
    """The table of ``rows`` in the order given; what all rows share of model and cluster has no column."""
    setups = [setup_of(row) for row in rows]
    varying = tuple(column for i, column in enumerate(_SETUP) if len({setup[i] for setup in setups}) > 1)
    columns = (_POLICY, *varying, *_FIGURES)
    unit = time_unit(row.iteration_s for row in rows)
    period = rate_period(row.throughput for row in rows)
    scales = {"time": unit.per_second, "rate": 1 / period.per_second, "percent": 100.0}
    symbols = {"time": unit.symbol, "rate": f"1/{period.symbol}", "percent": "%"}
    units, cells = [], []
    for column in columns:
        values = [column.value(row) for row in rows]
        units.append(symbols.get(column.format, ""))
        texts = _texts(column, values, scales.get(column.format, 1.0))
        cells.append([RankingCell(*pair) for pair in zip(texts, values, strict=True)])
    return Ranking(columns, tuple(units), tuple(zip(*cells, strict=True)))


def _texts(column: RankingColumn, values: Sequence[Value], scale: float) -> list[str]:
    if column.format in ("text", "count"):
        return [str(value) for value in values]
    scaled = [None if value is None else float(value) * scale for value in values]
    decimals = {"percent": 1, "ratio": 3}.get(column.format)
    if decimals is not None:
        return [UNDEFINED if value is None else f"{value:z.{decimals}f}" for value in scaled]
    decimals = decimals_for(value for value in scaled if value is not None)
    return [UNDEFINED if value is None else number_text(value, decimals) for value in scaled]
