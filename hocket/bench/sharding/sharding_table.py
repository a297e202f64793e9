"""The table of ``bench shard``, for the terminal."""

from __future__ import annotations

from rich.table import Table

from hocket.bench.sharding.sharding import ShardingBenchmark
from hocket.bench.sharding.sharding_request import HOCKET
from hocket.bench.training.training_table import variant_columns
from hocket.columns import terminal_table, written_column


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
    return "\n".join([first, *benchmark.explained])
