"""``hocket models``: the zoo."""

from __future__ import annotations

from hocket.cli import options
from hocket.cli.output import print_json, print_table, progress


def models(json: options.Json = False) -> None:
    """List the models that can be named: parameters (tensors), bytes, and operations of a training step."""
    from hocket import models as zoo
    from hocket.profiler import count_operations

    rows = []
    with progress("tracing") as report:
        for done, name in enumerate(zoo.names()):
            report(done, len(zoo.names()))
            table = zoo.parameter_table(name)
            rows.append(
                {
                    "name": name,
                    "parameters": len(table),
                    "bytes": 4 * sum(row.numel for row in table),
                    "operations": count_operations(name),
                }
            )
    if json:
        print_json(rows)
        return
    from rich.table import Table

    table_view = Table(box=None, header_style="bold")
    table_view.add_column("model")
    for heading in ("parameters", "MiB", "operations"):
        table_view.add_column(heading, justify="right")
    for row in rows:
        mebibytes = f"{row['bytes'] / 2**20:.2f}"
        table_view.add_row(row["name"], str(row["parameters"]), mebibytes, str(row["operations"]))
    print_table(table_view)
