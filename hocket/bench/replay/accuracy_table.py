"""The table of predictions' errors against replays, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hocket.bench.replay.accuracy_statistics import AccuracyGroup, AccuracyRow

_LEFT = ("step", "policy", "mode", "transport", "group")


def row_table(rows: Sequence[AccuracyRow]) -> Table:
    """A line for each configuration."""
    table = _table(
        *("step", "policy", "mode", "workers", "servers", "transport", "measured/s", "predicted/s"),
        *("error", "lin", "cynthia", "stolen"),
    )
    for row in rows:
        table.add_row(
            *(row.step, row.policy, row.mode, str(row.workers), str(row.servers or ""), row.transport),
            *(f"{row.measured:.4g}", f"{row.predicted:.4g}", f"{row.error:+.1%}"),
            *("" if error is None else f"{error:+.1%}" for error in (row.lin_error, row.cynthia_error)),
            f"{row.stolen:.1%}",
        )
    return table


def group_table(groups: Sequence[AccuracyGroup]) -> Table:
    """A line for each architecture, mode and transport."""
    table = _table("group", "rows", "mean error", "largest", "lin, mean", "cynthia, mean")
    for group in groups:
        coarse = (group.lin_mean_error, group.cynthia_mean_error)
        table.add_row(
            *(group_name(group), str(group.rows), f"{group.mean_error:.1%}", f"{group.largest_error:.1%}"),
            *("" if error is None else f"{error:.1%}" for error in coarse),
        )
    return table


def group_name(group: AccuracyGroup) -> str:
    """The name of a group: the setting that its rows have in common."""
    if group.architecture is None:
        return "all"
    if group.architecture == "allreduce":
        return "all-reduce"
    return f"parameter servers, {group.mode}" + (", gRPC" if group.transport == "grpc" else "")


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in _LEFT else "right")
    return table
