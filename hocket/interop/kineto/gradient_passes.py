"""The backward passes of a traced step, the last of which completes the gradients that all accumulate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hocket.interop.kineto.accumulations import Accumulation, accumulations
from hocket.interop.kineto.gradient_sizes import fit
from hocket.interop.kineto.launch_index import StepReader
from hocket.interop.kineto.tensors import ShapeOf, first_tensor
from hocket.interop.kineto.traced_operations import TracedStep


class Completed(NamedTuple):
    """Gradients of a step's last pass, how many passes it has, and whether all complete the same."""

    gradients: list[Accumulation]
    passes: int
    alike: bool


def completed(step: TracedStep, reader: StepReader, shape_of: ShapeOf = first_tensor) -> Completed:
    """The gradients of a step as its last backward pass completes them."""
    every = accumulations(step, shape_of) if reader.trains else []
    last = [gradient for gradient in every if gradient.event.start_us > reader.last_pass_us] or every
    if len(last) < len(every):
        passes = -(-len(every) // len(last))
        parts = [every[k : k + len(last)] for k in range(0, len(every), len(last))]
        if not _alike(parts):
            return Completed(last, passes, False)
        _gather(parts)
        return Completed(last, passes, True)
    # Passes behind all forward operations show by numbers that rise; two models' gradients would all be sent.
    parts = _runs(last)
    if len(parts) < 2 or not _alike(parts) or (step.reductions and fit(step.reductions, last)):
        return Completed(last, 1, True)
    _gather(parts)
    return Completed(parts[-1], len(parts), True)


def _runs(gradients: Sequence[Accumulation]) -> list[list[Accumulation]]:
    """Gradients by backward pass: autograd runs a pass from the highest sequence number to the lowest."""
    runs: list[list[Accumulation]] = []
    before = -1
    for gradient in gradients:
        number = gradient.nodes[0].sequence if gradient.nodes else None
        if not runs or (number is not None and number > before >= 0):
            runs.append([])
        runs[-1].append(gradient)
        before = before if number is None else number
    return runs


def _alike(parts: Sequence[Sequence[Accumulation]]) -> bool:
    """Tell whether passes complete as many gradients, of the same shapes as far as these are known."""
    shapes = [[gradient.shape for gradient in part] for part in parts]
    return all(own == shapes[0] for own in shapes)


def _gather(parts: Sequence[Sequence[Accumulation]]) -> None:
    """Give the gradients of the last pass the nodes of all."""
    for same in zip(*parts, strict=True):
        same[-1].nodes = [node for gradient in same for node in gradient.nodes]
