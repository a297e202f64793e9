"""Results of a step as a table: all columns for the page, a few that compare or all for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hocket.columns import (
    Cell,
    Column,
    narrow,
    number_column,
    percent_column,
    text_column,
    time_column,
)
from hocket.graph.result import ResultRow
from hocket.report.best_result import over_bound, rank_entries, setup_of
from hocket.report.compared_rows import usual_row
from hocket.report.result_files import Entry
from hocket.text import rate_period, time_unit


def ranking_columns(rows: Sequence[ResultRow]) -> list[Column]:
    """The columns of ``rows``, in the order given; what all share of model and cluster has none."""
    unit = time_unit(row.iteration_s for row in rows)
    period = rate_period(row.throughput for row in rows)
    policies = text_column("Policy", [row.title for row in rows], "The rule that orders transfers.")
    return [
        policies.as_clear(),
        *_setup_columns(rows),
        time_column(
            "Step time",
            [row.iteration_s for row in rows],
            unit,
            "Mean time of one training step.",
            short="Step",
        ).as_clear(),
        time_column(
            "95th pct.",
            [row.iteration_p95_s for row in rows],
            unit,
            "19 of 20 steps are no longer.",
            short="p95",
        ).as_wide(),
        number_column(
            "Throughput",
            [row.throughput / period.per_second for row in rows],
            "Examples over all workers.",
            unit=f"1/{period.symbol}",
            short="Rate",
        ).as_wide(),
        number_column(
            "Overlap",
            [row.overlap if min(row.communication_s, row.compute_s) > 0 else None for row in rows],
            "1: all of the shorter one of communication (N) and computation (C) is hidden; below 0: the step"
            " is longer than both in turn.",
            decimals=3,
        ).as_wide(),
        percent_column(
            "Utilization", [row.utilization for row in rows], "Share spent computing.", short="Util."
        ).as_wide(),
        number_column(
            "rho", [row.rho for row in rows], "N / C: communication over computation.", decimals=3
        ).as_wide(),
        percent_column(
            "Straggler",
            [row.straggler_fraction for row in rows],
            "The first worker's wait for the last one, as a part of the step.",
            short="Strag.",
        ).as_wide(),
        time_column(
            "Bound",
            [row.bound_s for row in rows],
            unit,
            "No order of as many transfers has a shorter mean step time.",
        ).as_wide(),
        *_memory_column(rows),
        percent_column(
            "Over bound",
            [over_bound(row) for row in rows],
            "The step's distance from the least that any order of as many transfers as its own can reach.",
        ).as_wide(),
    ]


def _memory_column(rows: Sequence[ResultRow]) -> list[Column]:
    """The memory that a device needs, where rows know it."""
    if all(row.memory_bytes is None for row in rows):
        return []
    needed = [None if row.memory_bytes is None else row.memory_bytes / 1e9 for row in rows]
    return [number_column("Memory", needed, "What a device needs at its fullest moment.", unit="GB")]


def _setup_columns(rows: Sequence[ResultRow]) -> list[Column]:
    """The model and the cluster, as far as ``rows`` differ in them."""
    setups = [setup_of(row) for row in rows]
    columns = [
        text_column("Model", [row.model for row in rows], "The network that was trained."),
        text_column("Architecture", [row.architecture for row in rows], "ps, allreduce or fsdp."),
        number_column("Workers", [row.workers for row in rows], "Processes that compute.", decimals=0),
        number_column(
            "Servers", [row.servers for row in rows], "Processes that hold the parameters.", decimals=0
        ),
    ]
    return [column.as_clear() for i, column in enumerate(columns) if len({each[i] for each in setups}) > 1]


def step_columns(
    rows: Sequence[ResultRow], *, wide: bool = False, alike_s: Mapping[str, float] | None = None
) -> list[Column]:
    """The columns of ``rows``, best first, with how much longer each step is than the usual policy's.

    ``alike_s``: as :class:`hocket.tuner.Tuning` has it, a step by some policies if all took the mean.
    """
    order = best_first(rows)
    columns = ranking_columns(order) if wide else narrow(ranking_columns(order))
    usual = usual_row(order)
    if usual is not None and usual.iteration_s > 0:
        apart = [100 * (row.iteration_s / usual.iteration_s - 1) for row in order]
        meaning = "The step's difference, + longer and - shorter."
        step = next(k for k, column in enumerate(columns) if column.heading == "Step time")
        against = Column(f"Against {usual.policy}", [_signed_cell(value) for value in apart], meaning, "%")
        columns.insert(step + 1, against)
    if alike_s:
        unit = time_unit(row.iteration_s for row in rows)
        times_s = [alike_s.get(row.policy) for row in order]
        columns.append(time_column("If alike", times_s, unit, "A step if all took as long as the mean one."))
    return columns


def best_first(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """``rows`` in the order of their table."""
    return [entry.row for entry in rank_entries(Entry(row) for row in rows)]


def _signed_cell(percent: float) -> Cell:
    text = f"{percent:+z.1f}"
    return Cell("0.0" if text == "+0.0" else text, percent)
