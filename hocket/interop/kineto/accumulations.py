"""The gradients that a traced step completes, each by an ``AccumulateGrad`` of autograd.

It comes right after the node that made the gradient, whose sequence number is that of the forward operator:
so a trace knows how many parameters there are, which operation completes each gradient, and who reads them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from hocket.interop.kineto.events import ACCUMULATE, NODE_PREFIX, HostSpan
from hocket.interop.kineto.tensors import ShapeOf, Tensor
from hocket.interop.kineto.traced_operations import TracedStep


@dataclass(slots=True, eq=False)
class Accumulation:
    """One gradient as it is completed; ``nodes``: who made it, in each pass that accumulates it."""

    event: HostSpan
    nodes: list[HostSpan]
    end_us: float
    bucket: int
    shape: Tensor | None


def accumulations(step: TracedStep, shape_of: ShapeOf) -> list[Accumulation]:
    """The gradients of a step, in the order in which they are complete; ``shape_of``: an operator's input."""
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
            found.append(Accumulation(event, nodes, end_us, bucket, shape_of(event)))
    return found
