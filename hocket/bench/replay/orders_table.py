"""Orders beside one another, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from hocket.bench.replay.orders import MedianRange, OrderRow

_LEFT = ("step", "policy")


def orders_table(rows: Sequence[OrderRow]) -> Table:
    """A line for each step, rho and policy; ratios above 1 are better than the first policy."""
    table = Table(box=None, header_style="bold")
    for heading in (
        *("step", "rho", "policy", "rate/s", "rate, x", "predicted, x", "95% step", "95%, x"),
        *("straggler", "straggler, x", "out of order", "stolen"),
    ):
        table.add_column(heading, justify="left" if heading in _LEFT else "right")
    for row in rows:
        ratio = "" if row.straggler_ratio is None else f"{row.straggler_ratio:.2f}"
        table.add_row(
            *(row.step, f"{row.rho:g}", row.policy, _shown(row.rate, ".4g"), _shown(row.rate_ratio, ".3f")),
            *(f"{row.predicted_ratio:.3f}", f"{row.p95_s:.3f} s", f"{row.p95_ratio:.3f}"),
            *(f"{row.straggler:.1%}", ratio, f"{row.out_of_order:.2%}", f"{row.stolen:.1%}"),
        )
    return table


def _shown(spread: MedianRange, form: str) -> str:
    return f"{spread.median:{form}} ({spread.least:{form}} to {spread.largest:{form}})"
