"""The tables of predictions' errors against replays, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.bench.replay.accuracy_statistics import AccuracyGroup, AccuracyRow
from hocket.columns import Column, text_column, written_column


def row_columns(rows: Sequence[AccuracyRow]) -> list[Column]:
    """A row for each configuration."""
    return [
        text_column("step", [row.step for row in rows]),
        text_column("policy", [row.policy for row in rows]),
        text_column("mode", [row.mode for row in rows]),
        written_column("workers", [row.workers for row in rows]),
        written_column("servers", [row.servers or "" for row in rows]),
        text_column("transport", [row.transport for row in rows]),
        written_column("measured/s", [f"{row.measured:.4g}" for row in rows]),
        written_column("predicted/s", [f"{row.predicted:.4g}" for row in rows]),
        written_column("error", [f"{row.error:+.1%}" for row in rows]),
        written_column("lin", [_share(row.lin_error, "+.1%") for row in rows]),
        written_column("cynthia", [_share(row.cynthia_error, "+.1%") for row in rows]),
        written_column("stolen", [f"{row.stolen:.1%}" for row in rows]),
    ]


def group_columns(groups: Sequence[AccuracyGroup]) -> list[Column]:
    """A row for each architecture, mode and transport."""
    return [
        text_column("group", [group_name(group) for group in groups]),
        written_column("rows", [group.rows for group in groups]),
        written_column("mean error", [f"{group.mean_error:.1%}" for group in groups]),
        written_column("largest", [f"{group.largest_error:.1%}" for group in groups]),
        written_column("lin, mean", [_share(group.lin_mean_error, ".1%") for group in groups]),
        written_column("cynthia, mean", [_share(group.cynthia_mean_error, ".1%") for group in groups]),
    ]


def group_name(group: AccuracyGroup) -> str:
    """The name of a group: the setting that its rows have in common."""
    if group.architecture is None:
        return "all"
    if group.architecture == "allreduce":
        return "all-reduce"
    return f"parameter servers, {group.mode}" + (", gRPC" if group.transport == "grpc" else "")


def _share(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"
