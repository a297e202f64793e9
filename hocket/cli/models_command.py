"""``hocket models``: the zoo."""

from __future__ import annotations

from hocket.cli import options
from hocket.cli.printing import print_json, print_table, progress


def models(json: options.Json = False) -> None:
    """List the models that can be named: parameters (tensors), bytes, operations of a training step."""
    from hocket import models as zoo

    tables = {}
    with progress("counting parameters") as report:
        for done, name in enumerate(zoo.names()):
            report(done, len(zoo.names()))
            tables[name] = zoo.parameter_table(name)
    num_bytes = {name: sum(row.num_bytes for row in table) for name, table in tables.items()}
    if json:
        print_json(
            [
                {
                    "name": name,
                    "parameters": len(table),
                    "bytes": num_bytes[name],
                    "operations": zoo.spec(name).num_operations,
                }
                for name, table in tables.items()
            ]
        )
        return
    from rich.table import Table

    shown = Table(box=None)
    shown.add_column("model")
    for heading in ("parameters", "MiB", "operations"):
        shown.add_column(heading, justify="right")
    for name, table in tables.items():
        operations = str(zoo.spec(name).num_operations)
        shown.add_row(name, str(len(table)), f"{num_bytes[name] / 2**20:.2f}", operations)
    print_table(shown)
