"""Which parameters a traced step trains: their sizes, who completes their gradients, who reads them first.

Each parameter's gradient ends in an ``AccumulateGrad`` of autograd, right after the node that made it, whose
sequence number is that of the forward operator: so a trace knows how many parameters there are, which
operation completes each gradient, and which operations of the forward pass read the parameter. Sizes are not
always there. They are taken from the first of

1. shapes that were recorded (``record_shapes=True``), by the trace or a joined ExecutionTrace;
2. DDP's ``copy_bucket_to_grad``, which copies the gradients back in the same order;
3. the all-reduces: then each is one parameter, a bucket of gradients whose boundaries are not in the file.

With all-reduces, 1 and 2 count only if the gradients between two launches add up to the all-reduce's message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hocket.graph.names import UniqueNames
from hocket.interop.kineto_events import ACCUMULATE, NODE_PREFIX, Host, whole
from hocket.interop.kineto_lookup import StepReader
from hocket.interop.kineto_steps import Step
from hocket.interop.kineto_tensors import Tensor, dtype_name, first_tensor, item_bytes

_COPY_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


@dataclass(kw_only=True)
class Parameter:
    """A trained parameter; ``readers`` and ``producer`` are places in the step's operations.

    ``bucket``: which all-reduce of the step exchanges its gradient; -1 without. ``copies``: operations that
    handle its reduced gradient alone.
    """

    name: str
    shape: list[int]
    dtype: str
    size_bytes: int
    producer: int
    readers: list[int]
    bucket: int = -1
    copies: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """What was found: ``sized_by`` says from what the sizes are, ``count`` how many gradients there were."""

    parameters: list[Parameter]
    sized_by: str
    count: int
    without_reader: int


@dataclass(slots=True, eq=False)
class _Accumulation:
    """One gradient as it is completed."""

    event: Host
    node: Host | None
    end_us: float
    bucket: int
    shape: Tensor | None


def find_gradients(step: Step, shape_of: Callable[[Host], Tensor | None] = first_tensor) -> Gradients:
    """The parameters of ``step``, those read first first; ``shape_of``: what an operator's input is."""
    reader = StepReader(step)
    if not reader.trains:
        return Gradients(parameters=[], sized_by="", count=0, without_reader=0)
    gradients = [g for g in _accumulations(step, shape_of) if g.event.start_us > reader.last_pass_us]
    copies = _copied_back(step)
    sized_by = "recorded shapes"
    if not _fits(step, gradients):
        sized_by = "DDP's copies of reduced gradients"
        if len(copies) == len(gradients):
            for gradient, (_, shape) in zip(gradients, copies, strict=True):
                gradient.shape = shape
        if not _fits(step, gradients):
            sized_by = "all-reduces"
    if sized_by == "all-reduces":
        parameters, unread = _buckets(step, reader, gradients)
    else:
        parameters, unread = _single(reader, gradients)
        if len(copies) == len(parameters):
            for parameter, (places, _) in zip(parameters, copies, strict=True):
                parameter.copies = places
    # What is complete last is read first, where nothing else tells them apart.
    parameters.reverse()
    parameters.sort(key=lambda parameter: min(parameter.readers, default=len(step.operations)))
    return Gradients(
        parameters=parameters,
        sized_by=sized_by if parameters else "",
        count=len(gradients),
        without_reader=unread,
    )


def _accumulations(step: Step, shape_of: Callable[[Host], Tensor | None]) -> list[_Accumulation]:
    launches = [reduction.gpu.call.start_us for reduction in step.reductions]
    last_node: dict[object, Host] = {}
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
                # What the hook launches after the all-reduce is no part of the gradient.
                end_us = min(end_us, launches[bucket])
            node = last_node.get(event.thread)
            found.append(_Accumulation(event, node, end_us, bucket, shape_of(event)))
    return found


def _copied_back(step: Step) -> list[tuple[list[int], Tensor | None]]:
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


def _fits(step: Step, gradients: Sequence[_Accumulation]) -> bool:
    """Whether all sizes are known, and add up to the messages of the all-reduces, if there are any."""
    if not gradients or any(gradient.shape is None for gradient in gradients):
        return False
    sums = [0] * (len(step.reductions) + 1)
    for gradient in gradients:
        assert gradient.shape is not None
        sums[gradient.bucket] += gradient.shape[2]
    if not step.reductions:
        return True
    expected = [reduction.size_bytes for reduction in step.reductions]
    return sums[-1] == 0 and all(
        size is None or size == sum_ for size, sum_ in zip(expected, sums[:-1], strict=True)
    )


def _single(reader: StepReader, gradients: Sequence[_Accumulation]) -> tuple[list[Parameter], int]:
    """Each gradient a parameter, named after the forward operator that reads it."""
    readers = [
        reader.readers(gradient.node.args.sequence if gradient.node else None) for gradient in gradients
    ]
    in_order = sorted(
        {id(rows): (rows, name) for rows, name in readers if rows}.values(), key=lambda x: x[0][0]
    )
    numbers, layer = UniqueNames(), {}
    for rows, name in in_order:
        layer[id(rows)] = numbers.take(name)
    names, parameters, unread = UniqueNames(), [], 0
    for gradient, (rows, _) in zip(gradients, readers, strict=True):
        assert gradient.shape is not None
        shape, dtype, size = gradient.shape
        unread += not rows
        name = f"{layer[id(rows)]}/parameter" if rows else "parameter"
        parameters.append(
            Parameter(
                name=names.take(name),
                shape=shape,
                dtype=dtype,
                size_bytes=size,
                producer=reader.last_backward(gradient.end_us),
                readers=rows or reader.first_forward,
                bucket=gradient.bucket if reader.step.reductions else -1,
            )
        )
    return parameters, unread


def _buckets(
    step: Step, reader: StepReader, gradients: Sequence[_Accumulation]
) -> tuple[list[Parameter], int]:
    """Each all-reduce a parameter, read by whatever reads one of the gradients in it."""
    parameters, unread = [], 0
    for k, reduction in enumerate(step.reductions):
        read: set[int] = set()
        for gradient in gradients:
            if gradient.bucket == k and gradient.node is not None:
                read.update(reader.readers(gradient.node.args.sequence)[0])
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
