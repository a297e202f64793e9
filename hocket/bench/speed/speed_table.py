"""The table of planners' and simulators' speeds, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hocket.bench.speed.speed import PlanRow, SimulationRow

_TEXT = ("step", "policy", "engine")


def plan_table(rows: Sequence[PlanRow]) -> Table:
    """A row for each step and policy; times are medians over repeats, with quartiles."""
    table = _table(
        "step", "operations", "parameters", "policy", "plan, ms", "quartiles", "us/operation", "compile, s"
    )
    for row in rows:
        low, middle, high = (1e3 * s for s in (row.plan_s.low, row.plan_s.median, row.plan_s.high))
        table.add_row(
            *(row.graph, str(row.operations), str(row.parameters), row.policy),
            *(f"{middle:.4g}", f"{low:.4g}..{high:.4g}", f"{1e6 * row.per_operation_s:.3g}"),
            f"{row.compile_s:.2f}",
        )
    return table


def simulation_table(rows: Sequence[SimulationRow]) -> Table:
    """A row for each step, number of workers and engine."""
    table = _table(
        *("step", "operations", "workers", "servers", "policy", "engine", "M events/s", "quartiles"),
        *("step, ms", "compile, s"),
    )
    for row in rows:
        rate = row.events_per_s
        table.add_row(
            *(row.graph, str(row.operations), str(row.workers), str(row.servers), row.policy, row.engine),
            *(f"{rate.median / 1e6:.2f}", f"{rate.low / 1e6:.2f}..{rate.high / 1e6:.2f}"),
            *(f"{1e3 * row.step_s.median:.4g}", f"{row.compile_s:.2f}"),
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in _TEXT else "right")
    return table
