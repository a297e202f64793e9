"""The table of ``bench shard``, for the terminal."""

from __future__ import annotations

from rich.table import Table

from hocket.bench.sharding.sharding import ShardingBenchmark
from hocket.bench.sharding.sharding_request import HOCKET
from hocket.bench.training.training_table import variant_columns
from hocket.columns import terminal_table, written_column
from hocket.text import duration_text


def sharding_table(benchmark: ShardingBenchmark) -> Table:
    """The variants, over plain FSDP2."""
    rows = benchmark.rows
    columns = [
        *variant_columns(
            [row.variant for row in rows],
            [row.step_s for row in rows],
            [row.speedup for row in rows],
            "FSDP2",
        ),
        written_column(
            "predicted, ms",
            ["" if row.predicted_s is None else f"{1e3 * row.predicted_s:.1f}" for row in rows],
        ),
        written_column(
            "off by", ["" if row.difference is None else f"{row.difference:+.1%}" for row in rows]
        ),
        written_column("full, MB", [_megabytes(row.full_bytes) for row in rows]),
        written_column("predicted, MB", [_megabytes(row.predicted_full_bytes) for row in rows]),
        written_column("stolen", [f"{row.stolen:.1%}" for row in rows]),
    ]
    return terminal_table(columns, [row.variant == HOCKET for row in rows], spaced=True)


def sharding_heading(benchmark: ShardingBenchmark) -> str:
    """A line on what was trained, and the report of hocket's plan."""
    first = (
        f"{benchmark.request.model}, {benchmark.parameter_bytes / 1e6:.1f} MB, batch"
        f" {benchmark.request.batch_size}, {benchmark.nodes} nodes at {benchmark.rate_bps / 1e6:g} Mbit/s;"
        f" hocket: plan '{benchmark.plan}', {benchmark.units} units"
    )
    held = f"hocket held at most {_megabytes(benchmark.held_bytes)} MB beside its shards"
    if benchmark.predicted_held_bytes is not None:
        held += f", {_megabytes(benchmark.predicted_held_bytes)} MB in simulation"
    if benchmark.limit_bytes is not None:
        held += f"; auto allows {_megabytes(benchmark.limit_bytes)} MB"
    return "\n".join([first, *benchmark.explained, held, *_assumed(benchmark)])


def _assumed(benchmark: ShardingBenchmark) -> list[str]:
    """A line on the measured costs that predictions go by; none without predictions."""
    if not benchmark.collectives:
        return []
    costs = [
        f"{kind}s {duration_text(cost.a_s)} and {duration_text(1e6 * cost.b_s_per_byte)} a MB"
        for kind, cost in benchmark.collectives.items()
    ]
    return [
        f"predicted by collectives one after the other, as timed between these nodes: {', '.join(costs)};"
        " all-to-alls as in the steps that were profiled"
    ]


def _megabytes(size_bytes: float | None) -> str:
    return "" if size_bytes is None else f"{size_bytes / 1e6:.1f}"
