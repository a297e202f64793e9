"""The parameters of a traced step: one for each gradient, or for each all-reduce of unknown gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hocket.graph.unique_names import UniqueNames
from hocket.interop.kineto.accumulations import Accumulation
from hocket.interop.kineto.launch_index import StepReader
from hocket.interop.kineto.tensors import dtype_name, item_bytes
from hocket.interop.kineto.traced_operations import TracedStep


@dataclass(kw_only=True)
class Parameter:
    """A trained parameter; ``readers`` and ``producer`` are places in the step's operations.

    ``copies``: operations that handle its reduced gradient alone. ``bucket``: the place of its all-reduce.
    ``producer``: None for one that is not trained.
    """

    name: str
    shape: list[int]
    dtype: str
    size_bytes: int
    producer: int | None
    readers: list[int]
    bucket: int
    copies: list[int] = field(default_factory=list)


def single(
    reader: StepReader, gradients: Sequence[Accumulation], *, unread: Sequence[int] | None = None
) -> tuple[list[Parameter], int]:
    """Each gradient a parameter, named after the forward operator that reads it, and how many nothing reads.

    ``unread``: the operations that are taken to read what nothing does; None: the first one.
    """
    readers = [_readers(reader, gradient) for gradient in gradients]
    named = {tuple(rows): name for rows, name in readers if rows}
    numbers, layer = UniqueNames(), {}
    for places in sorted(named):
        layer[places] = numbers.take(named[places])
    names, parameters, lacking = UniqueNames(), [], 0
    otherwise = reader.first_forward if unread is None else list(unread)
    for gradient, (rows, _) in zip(gradients, readers, strict=True):
        assert gradient.shape is not None
        shape, dtype, size = gradient.shape
        lacking += not rows
        name = f"{layer[tuple(rows)]}/parameter" if rows else "parameter"
        parameters.append(
            Parameter(
                name=names.take(name),
                shape=shape,
                dtype=dtype,
                size_bytes=size,
                producer=reader.last_backward(gradient.end_us),
                readers=rows or otherwise,
                bucket=gradient.bucket,
            )
        )
    return parameters, lacking


def buckets(
    step: TracedStep, reader: StepReader, gradients: Sequence[Accumulation]
) -> tuple[list[Parameter], int]:
    """Each all-reduce a parameter, read by whatever reads one of the gradients in it."""
    parameters, unread = [], 0
    for k, reduction in enumerate(step.reductions):
        read: set[int] = set()
        for gradient in gradients:
            if gradient.bucket == k:
                read.update(_readers(reader, gradient)[0])
        unread += not read
        size = reduction.size_bytes or 0
        parameters.append(
            Parameter(
                name=f"bucket{k}",
                shape=[size // (item_bytes(reduction.dtype) or 1)],
                dtype=dtype_name(reduction.dtype),
                size_bytes=size,
                producer=reader.last_backward(reduction.gpu.call.start_us),
                readers=sorted(read) or reader.first_forward,
                bucket=k,
            )
        )
    return parameters, unread


def _readers(reader: StepReader, gradient: Accumulation) -> tuple[list[int], str]:
    """The forward operations that read a parameter, in any pass, and the operator that launched the last."""
    found = [reader.readers(node.sequence) for node in gradient.nodes]
    rows = sorted({row for rows, _ in found for row in rows})
    return rows, next((name for _, name in reversed(found) if name), "")
