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

A backward pass of compiled autograd has none of these nodes: there each all-reduce is one parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hocket.interop.kineto.compiled_backward import BY_COMPILED, is_compiled_backward
from hocket.interop.kineto.gradient_passes import completed
from hocket.interop.kineto.gradient_sizes import as_sent, bytes_of, copied_back, fit
from hocket.interop.kineto.launch_index import StepReader
from hocket.interop.kineto.tensors import ShapeOf, first_tensor, lacks_types
from hocket.interop.kineto.traced_operations import TracedStep
from hocket.interop.kineto.traced_parameters import Parameter, buckets, single

BY_REDUCTIONS = "all-reduces"


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
        return self.sized_by not in ("", BY_REDUCTIONS, BY_COMPILED)


def find_gradients(step: TracedStep, shape_of: ShapeOf = first_tensor) -> TracedGradients:
    """The parameters of ``step``, those read first first; ``shape_of``: what an operator's input is."""
    reader = StepReader(step)
    gradients, passes, alike = completed(step, reader, shape_of)
    if not gradients:
        return _compiled(step, reader)
    shaped = bytes_of(gradients)
    sized_by = "recorded shapes"
    if not fit(step.reductions, gradients):
        sized_by = "DDP's copies of reduced gradients"
        copied = copied_back(step)
        if len(copied) == len(gradients):
            for gradient, (_, shape) in zip(gradients, copied, strict=True):
                gradient.shape = shape
        if not fit(step.reductions, gradients):
            sized_by = BY_REDUCTIONS
    if sized_by == BY_REDUCTIONS:
        parameters, unread = buckets(step, reader, gradients)
    else:
        as_sent(step.reductions, gradients)
        parameters, unread = single(reader, gradients)
        copies = copied_back(step)
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


def _compiled(step: TracedStep, reader: StepReader) -> TracedGradients:
    """The all-reduces of a backward pass that compiled autograd runs, each a parameter."""
    if not step.reductions or not is_compiled_backward(step.host):
        return TracedGradients()
    parameters, unread = buckets(step, reader, [])
    return TracedGradients(
        parameters=parameters[::-1],
        sized_by=BY_COMPILED,
        without_reader=unread,
        begun_us=step.reductions[0].gpu.call.start_us,
    )
