"""The parameters that a traced step trains: their sizes, who completes their gradients, who reads them.

Each parameter's gradient ends in an ``AccumulateGrad`` of autograd, right after the node that made it, whose
sequence number is that of the forward operator: so a trace knows how many parameters there are, which
operation completes each gradient, and which operations of the forward pass read the parameter. Sizes are not
always there. They are taken from the first of

1. shapes that were recorded (``record_shapes=True``), by the trace or a joined ExecutionTrace;
2. DDP's ``copy_bucket_to_grad``, which copies the gradients back in the same order;
3. the all-reduces: then each is one parameter, a bucket of gradients whose boundaries are not in the file.

With all-reduces, 1 and 2 count only if the gradients add up to the messages, in bytes or, where a hook sends
another type, in elements: then parameters have that type. Gradients that are accumulated over several passes
are complete in the last one, and read in each.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hocket.graph.unique_names import UniqueNames
from hocket.interop.kineto.events import ACCUMULATE, NODE_PREFIX, HostSpan, whole
from hocket.interop.kineto.launch_index import StepReader
from hocket.interop.kineto.tensors import Tensor, dtype_name, first_tensor, item_bytes, lacks_types
from hocket.interop.kineto.traced_collectives import TracedCollective
from hocket.interop.kineto.traced_operations import TracedStep

ShapeOf = Callable[[HostSpan], Tensor | None]

# By how much the messages may differ from the gradients in them.
APART = 0.03
BY_REDUCTIONS = "all-reduces"
_COPY_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


@dataclass(kw_only=True)
class Parameter:
    """A trained parameter; ``readers`` and ``producer`` are places in the step's operations.

    ``copies``: operations that handle its reduced gradient alone. ``bucket``: the place of its all-reduce.
    """

    name: str
    shape: list[int]
    dtype: str
    size_bytes: int
    producer: int
    readers: list[int]
    bucket: int
    copies: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TracedGradients:
    """The trained parameters, and what was found on the way to them.

    ``sized_by``: from what sizes are; ``count``: how many gradients there were; ``shaped_bytes``: of these by
    their recorded shapes, None if one is unknown; ``passes``: backward passes that accumulate, ``alike``:
    whether they complete the same, ``micro_batches``: how many of them have a forward pass of their own;
    ``begun_us``: when the first gradient of the last one was complete; ``lack_types``: whether shapes come
    without types, and float32 is assumed.
    """

    parameters: list[Parameter] = field(default_factory=list)
    sized_by: str = ""
    count: int = 0
    without_reader: int = 0
    shaped_bytes: int | None = None
    passes: int = 1
    alike: bool = True
    micro_batches: int = 1
    begun_us: float = math.inf
    lack_types: bool = False

    @property
    def sized(self) -> bool:
        """Tell whether each gradient's own size is known."""
        return self.sized_by not in ("", BY_REDUCTIONS)


@dataclass(slots=True, eq=False)
class _Accumulation:
    """One gradient as it is completed; ``nodes``: who made it, in each pass that accumulates it."""

    event: HostSpan
    nodes: list[HostSpan]
    end_us: float
    bucket: int
    shape: Tensor | None


class Completed(NamedTuple):
    """Gradients of a step's last pass, how many passes it has, and whether all complete the same."""

    gradients: list[_Accumulation]
    passes: int
    alike: bool


def find_gradients(step: TracedStep, shape_of: ShapeOf = first_tensor) -> TracedGradients:
    """The parameters of ``step``, those read first first; ``shape_of``: what an operator's input is."""
    reader = StepReader(step)
    gradients, passes, alike = completed(step, reader, shape_of)
    if not gradients:
        return TracedGradients()
    shaped = bytes_of(gradients)
    sized_by = "recorded shapes"
    if not fit(step.reductions, gradients):
        sized_by = "DDP's copies of reduced gradients"
        copied = _copied_back(step)
        if len(copied) == len(gradients):
            for gradient, (_, shape) in zip(gradients, copied, strict=True):
                gradient.shape = shape
        if not fit(step.reductions, gradients):
            sized_by = BY_REDUCTIONS
    if sized_by == BY_REDUCTIONS:
        parameters, unread = _buckets(step, reader, gradients)
    else:
        _as_sent(step.reductions, gradients)
        parameters, unread = _single(reader, gradients)
        copies = _copied_back(step)
        if len(copies) == len(parameters):
            for parameter, (places, _) in zip(parameters, copies, strict=True):
                parameter.copies = places
    # The parameter that is complete last is read first, where nothing else tells them apart.
    parameters.reverse()
    parameters.sort(key=lambda parameter: min(parameter.readers, default=len(step.operations)))
    return TracedGradients(
        parameters=parameters,
        sized_by=sized_by if parameters else "",
        count=len(gradients),
        without_reader=unread,
        shaped_bytes=shaped,
        passes=passes,
        alike=alike,
        micro_batches=max(1, len({node.sequence for node in gradients[0].nodes})),
        begun_us=gradients[0].event.start_us,
        lack_types=any(lacks_types(gradient.event) for gradient in gradients),
    )


def completed(step: TracedStep, reader: StepReader, shape_of: ShapeOf = first_tensor) -> Completed:
    """The gradients of a step as its last backward pass completes them."""
    every = _accumulations(step, shape_of) if reader.trains else []
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


def _runs(gradients: Sequence[_Accumulation]) -> list[list[_Accumulation]]:
    """Gradients by backward pass: autograd runs a pass from the highest sequence number to the lowest."""
    runs: list[list[_Accumulation]] = []
    before = -1
    for gradient in gradients:
        number = gradient.nodes[0].sequence if gradient.nodes else None
        if not runs or (number is not None and number > before >= 0):
            runs.append([])
        runs[-1].append(gradient)
        before = before if number is None else number
    return runs


def _alike(parts: Sequence[Sequence[_Accumulation]]) -> bool:
    """Tell whether passes complete as many gradients, of the same shapes as far as these are known."""
    shapes = [[gradient.shape for gradient in part] for part in parts]
    return all(own == shapes[0] for own in shapes)


def _gather(parts: Sequence[Sequence[_Accumulation]]) -> None:
    """Give the gradients of the last pass the nodes of all."""
    for same in zip(*parts, strict=True):
        same[-1].nodes = [node for gradient in same for node in gradient.nodes]


def bytes_of(gradients: Sequence[_Accumulation]) -> int | None:
    """Bytes of all gradients by their shapes; None where one is unknown."""
    sizes = [gradient.shape[2] for gradient in gradients if gradient.shape is not None]
    return sum(sizes) if len(sizes) == len(gradients) else None


def elements_of(gradients: Sequence[_Accumulation]) -> int:
    """Elements of all gradients whose shapes are known."""
    return sum(math.prod(gradient.shape[0]) for gradient in gradients if gradient.shape is not None)


def fit(reductions: Sequence[TracedCollective], gradients: Sequence[_Accumulation]) -> bool:
    """Tell whether all sizes are known, and are those of the all-reduces' messages, if there are any."""
    size = bytes_of(gradients)
    if size is None:
        return False
    sizes = [reduction.size_bytes for reduction in reductions]
    known = sum(size for size in sizes if size is not None)
    if None in sizes or not reductions:
        return known <= size * (1 + APART)
    return abs(known - size) <= size * APART or _sent_as(reductions, gradients) != ""


def _sent_as(reductions: Sequence[TracedCollective], gradients: Sequence[_Accumulation]) -> str:
    """The type in which all gradients are sent, if it is another than theirs; else nothing."""
    types = {reduction.dtype for reduction in reductions}
    own = {gradient.shape[1] for gradient in gradients if gradient.shape is not None}
    sent = sum(reduction.elements or 0 for reduction in reductions)
    elements = elements_of(gradients)
    if len(types) == 1 and types != own and elements and abs(sent - elements) <= elements * APART:
        return next(iter(types))
    return ""


def _as_sent(reductions: Sequence[TracedCollective], gradients: Sequence[_Accumulation]) -> None:
    """Give gradients the type in which they travel, as a hook that compresses them chooses it."""
    dtype = _sent_as(reductions, gradients)
    if not dtype:
        return
    for gradient in gradients:
        assert gradient.shape is not None
        shape = gradient.shape[0]
        gradient.shape = shape, dtype, math.prod(shape) * (item_bytes(dtype) or 1)


def _accumulations(step: TracedStep, shape_of: ShapeOf) -> list[_Accumulation]:
    launches = [reduction.gpu.call.start_us for reduction in step.reductions]
    last_node: dict[object, HostSpan] = {}
    found = []
    for event in step.host:
        if event.name.startswith(NODE_PREFIX) and not event.name.endswith(ACCUMULATE):
            last_node[event.thread] = event
        elif event.name == ACCUMULATE:
            around = event.parent
            # Hooks, such as DDP's copy into a bucket, run inside the node and after the operator.
            end_us = (
                around.end_us if around is not None and around.name.startswith(NODE_PREFIX) else event.end_us
            )
            bucket = bisect_right(launches, event.start_us)
            if bucket < len(launches):
                # An operation that the hook launches after the all-reduce is no part of the gradient.
                end_us = min(end_us, launches[bucket])
            node = last_node.get(event.thread)
            nodes = [] if node is None else [node]
            found.append(_Accumulation(event, nodes, end_us, bucket, shape_of(event)))
    return found


def _copied_back(step: TracedStep) -> list[tuple[list[int], Tensor | None]]:
    """Of each of DDP's copies back the operations, and what it copied."""
    found: dict[int, list[int]] = {}
    for i, operation in enumerate(step.operations):
        if operation.gpu.call.host is None:
            continue
        copy = next((event for event in operation.gpu.call.host.chain() if event.name == _COPY_BACK), None)
        if copy is not None:
            found.setdefault(id(copy), []).append(i)
    dtype = step.reductions[0].dtype if step.reductions else "float32"
    copies: list[tuple[list[int], Tensor | None]] = []
    for places in found.values():
        sizes = [whole(step.operations[i].gpu.args.copied_bytes) for i in places]
        size = sizes[0] if len(sizes) == 1 else None
        copies.append((places, None if size is None else ([size // (item_bytes(dtype) or 1)], dtype, size)))
    return copies


def _single(reader: StepReader, gradients: Sequence[_Accumulation]) -> tuple[list[Parameter], int]:
    """Each gradient a parameter, named after the forward operator that reads it."""
    readers = [_readers(reader, gradient) for gradient in gradients]
    named = {tuple(rows): name for rows, name in readers if rows}
    numbers, layer = UniqueNames(), {}
    for places in sorted(named):
        layer[places] = numbers.take(named[places])
    names, parameters, unread = UniqueNames(), [], 0
    for gradient, (rows, _) in zip(gradients, readers, strict=True):
        assert gradient.shape is not None
        shape, dtype, size = gradient.shape
        unread += not rows
        name = f"{layer[tuple(rows)]}/parameter" if rows else "parameter"
        parameters.append(
            Parameter(
                name=names.take(name),
                shape=shape,
                dtype=dtype,
                size_bytes=size,
                producer=reader.last_backward(gradient.end_us),
                readers=rows or reader.first_forward,
                bucket=gradient.bucket,
            )
        )
    return parameters, unread


def _buckets(
    step: TracedStep, reader: StepReader, gradients: Sequence[_Accumulation]
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


def _readers(reader: StepReader, gradient: _Accumulation) -> tuple[list[int], str]:
    """The forward operations that read a parameter, in any pass, and the operator that launched the last."""
    found = [reader.readers(node.sequence) for node in gradient.nodes]
    rows = sorted({row for rows, _ in found for row in rows})
    return rows, next((name for _, name in reversed(found) if name), "")
