"""The table of ``bench train``, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.table import Table

from hocket.bench.training.training_request import HOCKET
from hocket.bench.training.training_statistics import Limit, Quartiles, TrainingCell, TrainingSummary

_LIMITS: dict[Limit, str] = {"compute": "C busy", "network": "N", "cycle": "the critical cycle"}
_HEADINGS = ("variant", "step, ms", "quartiles", "over DDP", "quartiles", "to bound", "stolen")


def cell_table(cell: TrainingCell) -> Table:
    """The variants of one model at one batch size, over DDP's best bucket or, compiled, compiled DDP."""
    table = Table(box=None, header_style="bold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading == "variant" else "right")
    for row in cell.rows:
        ratio = (
            ("", "") if row.speedup is None else (f"{row.speedup.median:.3f}x", _quartiles(row.speedup, 3))
        )
        to_bound = "" if row.over_bound is None else f"{row.over_bound:.3f}"
        in_ms = Quartiles(**{of: 1e3 * getattr(row.step_s, of) for of in Quartiles.__struct_fields__})
        table.add_row(
            *(row.variant, f"{in_ms.median:.1f}", _quartiles(in_ms, 1), *ratio, to_bound),
            f"{median(row.stolen):.1%}",
            style="bold" if row.variant == HOCKET else "",
        )
    return table


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


def _quartiles(spread: Quartiles, decimals: int) -> str:
    return f"{spread.low:.{decimals}f}..{spread.high:.{decimals}f}"


def summary_line(cells: Sequence[TrainingCell], summary: TrainingSummary) -> str:
    """One line over all cells."""
    return (
        f"hocket over the best DDP bucket: {summary.mean_speedup:.3f}x (geometric mean of {len(cells)}),"
        f" at least {summary.least_speedup:.3f}x; at most {summary.most_over_bound:.3f} times the bound"
    )
