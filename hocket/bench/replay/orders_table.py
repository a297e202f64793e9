"""Orders beside one another, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hocket.bench.replay.orders import MedianRange, OrderRow
from hocket.columns import terminal_table, text_column, written_column


def orders_table(rows: Sequence[OrderRow]) -> Table:
    """A line for each step, rho and policy; ratios above 1 are better than the first policy."""
    behind = ["" if row.straggler_ratio is None else f"{row.straggler_ratio:.2f}" for row in rows]
    columns = [
        text_column("step", [row.step for row in rows]),
        written_column("rho", [f"{row.rho:g}" for row in rows]),
        text_column("policy", [row.policy for row in rows]),
        written_column("rate/s", [_shown(row.rate, ".4g") for row in rows]),
        written_column("rate, x", [_shown(row.rate_ratio, ".3f") for row in rows]),
        written_column("predicted, x", [f"{row.predicted_ratio:.3f}" for row in rows]),
        written_column("95% step", [f"{row.p95_s:.3f} s" for row in rows]),
        written_column("95%, x", [f"{row.p95_ratio:.3f}" for row in rows]),
        written_column("straggler", [f"{row.straggler:.1%}" for row in rows]),
        written_column("straggler, x", behind),
        written_column("out of order", [f"{row.out_of_order:.2%}" for row in rows]),
        written_column("stolen", [f"{row.stolen:.1%}" for row in rows]),
    ]
    return terminal_table(columns, spaced=True)


def _shown(spread: MedianRange, form: str) -> str:
    return f"{spread.median:{form}} ({spread.least:{form}} to {spread.largest:{form}})"
