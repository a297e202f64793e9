"""All-reduces of gradients that no hook of autograd launched: averaged by hand, or by a thread of their own.

They are known by their sizes: together with those that hooks launched they carry all gradients of the step.
"""

from __future__ import annotations

from hocket.graph import Phase
from hocket.interop.kineto.gradient_passes import completed
from hocket.interop.kineto.gradient_sizes import APART, elements_of
from hocket.interop.kineto.launch_index import StepReader
from hocket.interop.kineto.traced_collectives import ALL_REDUCE
from hocket.interop.kineto.traced_operations import TracedOperation, TracedStep

# A flag (whether a gradient is finite), a norm or a metric has fewer, and so have a few biases.
_FEW_ELEMENTS = 16


def claim_reductions(step: TracedStep) -> None:
    """Make all-reduces into gradient reductions if their sizes add up to the gradients that have none yet."""
    late = [operation for operation in step.operations if _may_reduce(operation)]
    if not late:
        return
    gradients = completed(step, StepReader(step)).gradients
    if not gradients or any(gradient.shape is None for gradient in gradients):
        return
    begun_us, wanted = gradients[0].event.start_us, elements_of(gradients)
    left = wanted - sum(reduction.elements or 0 for reduction in step.reductions)
    candidates = [operation for operation in late if operation.gpu.call.start_us > begun_us]
    for least in (0, _FEW_ELEMENTS):
        claimed = [operation for operation in candidates if _elements(operation) > least]
        total = sum(map(_elements, claimed))
        if claimed and (total == left or (least and 0 <= total - left <= wanted * APART)):
            break
    else:
        return
    of_gradients = {id(operation) for operation in claimed}
    step.reductions += [operation.collective for operation in claimed if operation.collective is not None]
    step.reductions.sort(key=lambda reduction: reduction.gpu.call.start_us)
    step.operations = [operation for operation in step.operations if id(operation) not in of_gradients]


def _may_reduce(operation: TracedOperation) -> bool:
    """Tell whether it is an all-reduce of numbers that no node of autograd launched."""
    found = operation.collective
    return (
        found is not None
        and found.kind == ALL_REDUCE
        and not found.counts
        and operation.phase != Phase.BACKWARD
    )


def _elements(operation: TracedOperation) -> int:
    return 0 if operation.collective is None else operation.collective.elements or 0
