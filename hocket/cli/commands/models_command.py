"""``hocket models``: the zoo."""

from __future__ import annotations

from hocket.cli import options
from hocket.cli.printing import note, print_json, print_table, progress
from hocket.text import capitalized


def models(json: options.Json = False) -> None:
    """List the models that can be named: parameters (tensors), bytes, operations of a training step."""
    from hocket import models as zoo

    tables, total = {}, len(zoo.names())
    # The first model loads torch, which takes longer than all that follows.
    with progress("loading torch", is_even=False) as report:
        for done, name in enumerate(zoo.names(), start=1):
            tables[name] = zoo.parameter_table(name)
            report(done, total, f"counting parameters, {done} of {total} models")
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
    from hocket.columns import terminal_table, text_column, written_column

    columns = [
        text_column("model", tables),
        written_column("parameters", [len(table) for table in tables.values()]),
        written_column("MiB", [f"{num_bytes[name] / 2**20:.2f}" for name in tables]),
        written_column("operations", [zoo.spec(name).num_operations for name in tables]),
    ]
    print_table(terminal_table(columns, spaced=True))
    note(f"{capitalized(zoo.OTHERS)}.")
