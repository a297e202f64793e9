"""Steps of any size in the shape of an Inception network: blocks of branches, and their mirror image."""

from __future__ import annotations

import numpy as np

from hocket.graph import OperationRow, ParameterRow, StepGraph, StepRows, step_from_rows

BRANCHES = 4


def inception_like(num_operations: int, num_parameters: int, samples: int = 5, seed: int = 0) -> StepGraph:
    """Blocks of four branches, joined after each; every branch reads one parameter.

    Forward and backward share the operations evenly; durations are lognormal around a millisecond, sizes
    around 256 KiB.
    """
    rng = np.random.default_rng(seed)
    per_parameter = num_operations // (2 * num_parameters)
    names = [f"w{i}" for i in range(num_parameters)]
    sizes = np.exp(rng.normal(np.log(2**18), 1.5, num_parameters)).astype(int) + 1
    operations: list[OperationRow] = []

    def add(name: str, phase: str, inputs: list[str], reads: list[str], produces: list[str]) -> str:
        durations = np.exp(rng.normal(np.log(1e-3), 0.7) + rng.normal(0, 0.05, samples)).tolist()
        operations.append(OperationRow(name, phase, durations, inputs, reads, produces))  # type: ignore[arg-type]
        return name

    joined: list[str] = []
    blocks = [names[i : i + BRANCHES] for i in range(0, num_parameters, BRANCHES)]
    for block in blocks:
        ends = []
        for name in block:
            last = add(f"{name}/0", "forward", joined, [name], [])
            for k in range(1, per_parameter):
                last = add(f"{name}/{k}", "forward", [last], [], [])
            ends.append(last)
        joined = ends
    for block in reversed(blocks):
        ends = []
        for name in reversed(block):
            last = add(f"{name}/back 0", "backward", joined, [name], [])
            for k in range(1, per_parameter):
                last = add(
                    f"{name}/back {k}", "backward", [last], [], [name] if k == per_parameter - 1 else []
                )
            ends.append(last)
        joined = ends
    parameters = [
        ParameterRow(name=n, shape=[int(s)], dtype="uint8", bytes=int(s))
        for n, s in zip(names, sizes, strict=True)
    ]
    return step_from_rows(
        StepRows(
            model="inception-like",
            batch_size=32,
            device="synthetic",
            parameters=parameters,
            operations=operations,
        )
    )
