"""The table of planners' and simulators' speeds, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hocket.bench.speed.speed import PlanRow, SimulationRow
from hocket.columns import terminal_table, text_column, written_column


def plan_table(rows: Sequence[PlanRow]) -> Table:
    """A row for each step and policy; times are medians over repeats, with quartiles."""
    columns = [
        text_column("step", [row.graph for row in rows]),
        written_column("operations", [row.operations for row in rows]),
        written_column("parameters", [row.parameters for row in rows]),
        text_column("policy", [row.policy for row in rows]),
        written_column("plan, ms", [f"{1e3 * row.plan_s.median:.4g}" for row in rows]),
        written_column(
            "quartiles", [f"{1e3 * row.plan_s.low:.4g}..{1e3 * row.plan_s.high:.4g}" for row in rows]
        ),
        written_column("us/operation", [f"{1e6 * row.per_operation_s:.3g}" for row in rows]),
        written_column("compile, s", [f"{row.compile_s:.2f}" for row in rows]),
    ]
    return terminal_table(columns, spaced=True)


def simulation_table(rows: Sequence[SimulationRow]) -> Table:
    """A row for each step, number of workers and engine."""
    rates = [row.events_per_s for row in rows]
    columns = [
        text_column("step", [row.graph for row in rows]),
        written_column("operations", [row.operations for row in rows]),
        written_column("workers", [row.workers for row in rows]),
        written_column("servers", [row.servers for row in rows]),
        text_column("policy", [row.policy for row in rows]),
        text_column("engine", [row.engine for row in rows]),
        written_column("M events/s", [f"{rate.median / 1e6:.2f}" for rate in rates]),
        written_column("quartiles", [f"{rate.low / 1e6:.2f}..{rate.high / 1e6:.2f}" for rate in rates]),
        written_column("step, ms", [f"{1e3 * row.step_s.median:.4g}" for row in rows]),
        written_column("compile, s", [f"{row.compile_s:.2f}" for row in rows]),
    ]
    return terminal_table(columns, spaced=True)
