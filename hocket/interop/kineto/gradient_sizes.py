"""The sizes of gradients beside those of the messages that all-reduce them.

With all-reduces, sizes count only if the gradients add up to the messages, in bytes or, where a hook sends
another type, in elements: then parameters have that type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hocket.interop.kineto.accumulations import Accumulation
from hocket.interop.kineto.events import whole
from hocket.interop.kineto.tensors import Tensor, item_bytes
from hocket.interop.kineto.traced_collectives import TracedCollective
from hocket.interop.kineto.traced_operations import TracedStep

# By how much the messages may differ from the gradients in them.
APART = 0.03
_COPY_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def bytes_of(gradients: Sequence[Accumulation]) -> int | None:
    """Bytes of all gradients by their shapes; None where one is unknown."""
    sizes = [gradient.shape[2] for gradient in gradients if gradient.shape is not None]
    return sum(sizes) if len(sizes) == len(gradients) else None


def elements_of(gradients: Sequence[Accumulation]) -> int:
    """Elements of all gradients whose shapes are known."""
    return sum(math.prod(gradient.shape[0]) for gradient in gradients if gradient.shape is not None)


def fit(reductions: Sequence[TracedCollective], gradients: Sequence[Accumulation]) -> bool:
    """Tell whether all sizes are known, and are those of the all-reduces' messages, if there are any."""
    size = bytes_of(gradients)
    if size is None:
        return False
    sizes = [reduction.size_bytes for reduction in reductions]
    known = sum(size for size in sizes if size is not None)
    if None in sizes or not reductions:
        return known <= size * (1 + APART)
    return abs(known - size) <= size * APART or _sent_as(reductions, gradients) != ""


def _sent_as(reductions: Sequence[TracedCollective], gradients: Sequence[Accumulation]) -> str:
    """The type in which all gradients are sent, if it is another than theirs; else nothing."""
    types = {reduction.dtype for reduction in reductions}
    own = {gradient.shape[1] for gradient in gradients if gradient.shape is not None}
    sent = sum(reduction.elements or 0 for reduction in reductions)
    elements = elements_of(gradients)
    if len(types) == 1 and types != own and elements and abs(sent - elements) <= elements * APART:
        return next(iter(types))
    return ""


def as_sent(reductions: Sequence[TracedCollective], gradients: Sequence[Accumulation]) -> None:
    """Give gradients the type in which they travel, as a hook that compresses them chooses it."""
    dtype = _sent_as(reductions, gradients)
    if not dtype:
        return
    for gradient in gradients:
        assert gradient.shape is not None
        shape = gradient.shape[0]
        gradient.shape = shape, dtype, math.prod(shape) * (item_bytes(dtype) or 1)


def copied_back(step: TracedStep) -> list[tuple[list[int], Tensor | None]]:
    """The operations of each of DDP's copies back, and what it copied."""
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
