"""The table of ``bench train``, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.table import Table

from hocket.bench.training.training_request import HOCKET
from hocket.bench.training.training_statistics import Limit, Quartiles, TrainingCell, TrainingSummary
from hocket.columns import Column, terminal_table, text_column, written_column

_LIMITS: dict[Limit, str] = {"compute": "C busy", "network": "N", "cycle": "the critical cycle"}


def variant_columns(
    variants: Sequence[str], steps_s: Sequence[Quartiles], gains: Sequence[Quartiles | None], baseline: str
) -> list[Column]:
    """The steps of variants, and how many times faster they are than ``baseline``: medians and quartiles."""
    return [
        text_column("variant", variants),
        written_column("step, ms", [f"{1e3 * each.median:.1f}" for each in steps_s]),
        written_column("quartiles", [f"{1e3 * each.low:.1f}..{1e3 * each.high:.1f}" for each in steps_s]),
        written_column(f"over {baseline}", ["" if gain is None else f"{gain.median:.3f}x" for gain in gains]),
        written_column(
            "quartiles", ["" if gain is None else f"{gain.low:.3f}..{gain.high:.3f}" for gain in gains]
        ),
    ]


def cell_table(cell: TrainingCell) -> Table:
    """The variants of one model at one batch size, over DDP's best bucket or, compiled, compiled DDP."""
    rows = cell.rows
    columns = [
        *variant_columns(
            [row.variant for row in rows], [row.step_s for row in rows], [row.speedup for row in rows], "DDP"
        ),
        written_column(
            "to bound", ["" if row.over_bound is None else f"{row.over_bound:.3f}" for row in rows]
        ),
        written_column("stolen", [f"{median(row.stolen):.1%}" for row in rows]),
    ]
    return terminal_table(columns, [row.variant == HOCKET for row in rows], spaced=True)


def cell_heading(cell: TrainingCell) -> str:
    """Two lines: the model that was trained, and the times that its variants are compared with."""
    asked = "" if cell.rho_target is None else f" (asked for {cell.rho_target:g})"
    return (
        f"{cell.model}, {cell.gradient_bytes / 1e6:.1f} MB, batch {cell.batch_size}:"
        f" rho {cell.rho:.2f}{asked}\n"
        f"C {cell.compute_s:.4g} s, C busy {cell.busy_s:.4g} s ({cell.lockstep_s:.4g} s in lockstep),"
        f" N {cell.network_s:.4g} s,"
        f" critical cycle {cell.cycle_s:.4g} s; bound {cell.bound_s:.4g} s by {_LIMITS[cell.limit]};"
        f" {cell.plan} simulated {cell.simulated_s:.4g} s"
    )


def summary_line(cells: Sequence[TrainingCell], summary: TrainingSummary) -> str:
    """One line over all cells."""
    return (
        f"hocket over the best DDP bucket: {summary.mean_speedup:.3f}x (geometric mean of {len(cells)}),"
        f" at least {summary.least_speedup:.3f}x; at most {summary.most_over_bound:.3f} times the bound"
    )
