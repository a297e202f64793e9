"""Steps to time planners and simulators with: given, of the zoo, or generated in any size."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from hocket import models
from hocket.errors import HocketError, UnknownNameError
from hocket.graph import OperationRow, ParameterRow, StepGraph, StepRows, load_step, step_from_rows

BRANCHES = 4
_FEWEST, _MOST = 64, 1_000_000
_OPERATIONS_EACH = 20  # of a parameter; the papers' graphs have 10 to 50
_SAMPLES, _JITTER = 5, 0.05


def load_target(target: str) -> StepGraph:
    """The step that ``target`` names: a file, a model of the zoo, a number of operations, or ``chain``.

    A file is hocket.step/1. A model's step is derived for a K80 at its default batch size, with five sampled
    steps that differ; a number's is :func:`inception_like`.

    Raises
    ------
    HocketError
        For a number out of range, a file that is no step, and a name that is neither.
    """
    if target.isascii() and target.isdecimal():
        if not _FEWEST <= int(target[:12]) <= _MOST:
            raise HocketError(f"a step of {target} operations is not between {_FEWEST} and {_MOST}")
        return inception_like(int(target), max(BRANCHES, int(target) // _OPERATIONS_EACH))
    if target == "chain":
        return chain()
    if target in models.names():
        from hocket.profiler import derive, fake, make_step

        with fake():
            step = make_step(*models.make(target))
            return derive(step, device="k80", name=target, samples=_SAMPLES, jitter=_JITTER)
    if target.endswith((".json", ".json.zst")) or Path(target).exists():
        return load_step(target)
    raise UnknownNameError("step", target, (*models.names(), "chain", "STEP.json", "a number of operations"))


def chain(num_layers: int = 16, samples: int = 5, seed: int = 0) -> StepGraph:
    """Layers of 1 MiB each, one after the other; a backward pass of twice the forward pass's time."""
    rng = np.random.default_rng(seed)
    names = [f"layer {k}" for k in range(num_layers)]
    forward = [f"{name} forward" for name in names]
    backward = [f"{name} backward" for name in reversed(names)]

    def durations_s(mean_s: float) -> list[float]:
        return [mean_s * float(factor) for factor in rng.normal(1.0, _JITTER, samples).clip(0.5)]

    operations = [
        OperationRow(forward[k], "forward", durations_s(1e-3), forward[k - 1 : k], [names[k]], [])
        for k in range(num_layers)
    ]
    for k, name in enumerate(reversed(names)):
        inputs = backward[k - 1 : k] or forward[-1:]
        operations.append(OperationRow(backward[k], "backward", durations_s(2e-3), inputs, [name], [name]))
    return step_from_rows(
        StepRows(
            model="chain",
            batch_size=32,
            device="synthetic",
            parameters=[
                ParameterRow(name=name, shape=[2**18], dtype="float32", bytes=2**20) for name in names
            ],
            operations=operations,
        )
    )


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

    def add(
        name: str,
        phase: Literal["forward", "backward"],
        inputs: list[str],
        reads: list[str],
        produces: list[str],
    ) -> str:
        durations = np.exp(rng.normal(np.log(1e-3), 0.7) + rng.normal(0, 0.05, samples)).tolist()
        operations.append(OperationRow(name, phase, durations, inputs, reads, produces))
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
