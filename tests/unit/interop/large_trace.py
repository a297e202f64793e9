"""A large trace, to measure what reading takes: ``python -m tests.unit.interop.large_trace 2000 t.json``."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from hocket.interop.kineto.kineto_step import import_kineto
from tests.unit.interop.kinds import Training, steps, usual

_LAYERS = (4096,) * 400
_STEPS = 4


def write(path: Path, size_bytes: int) -> None:
    """Write a trace of about that size: some steps, and operators without number around their time."""
    document = steps(Training(layers=_LAYERS), usual, _STEPS)
    events = document["traceEvents"]
    filling = ",\n".join(
        json.dumps({
            "ph": "X", "cat": "cpu_op", "name": f"aten::op{k % 97}", "pid": 9, "tid": 50 + k % 3,
            "ts": "TIME", "dur": 0.08, "args": {"External id": k, "Record function id": k, "Ev Idx": k,
            "Input Dims": [[k % 64, 1024], [k % 7]], "Input type": ["float", "float"]},
        }).replace('"TIME"', f"1@{k * 0.1:06.1f}")
        for k in range(20_000)
    )  # fmt: skip
    rest = {key: value for key, value in document.items() if key != "traceEvents"}
    with path.open("w") as file:
        file.write(json.dumps(rest)[:-1] + ', "traceEvents": [\n')
        file.write(",\n".join(map(json.dumps, events)))
        block = 0
        while file.tell() < size_bytes:
            file.write(",\n" + filling.replace("@", f"{block:04}"))
            block += 1
        file.write("\n]}\n")


def main() -> None:
    """Write a trace of so many megabytes, import it, and print the most memory that this took."""
    path = Path(sys.argv[2])
    write(path, int(sys.argv[1]) * 1_000_000)
    graph = import_kineto([path]).graph
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{path.stat().st_size / 1e6:.0f} MB, {graph.num_operations} operations: {peak:.0f} MiB at most")


if __name__ == "__main__":
    main()
