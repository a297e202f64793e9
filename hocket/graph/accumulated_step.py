"""A step that sums the gradients of several batches up before it exchanges them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.graph.step import Phase


def accumulated(graph: StepGraph, batches: int) -> StepGraph:
    """``graph`` with so many batches for one update, of which the last one's gradients alone are exchanged.

    The batches before it take their forward and backward passes. They come when the first forward pass has
    read all parameters and before any gradient is complete: the first operation of the backward pass is
    that much longer.

    Raises
    ------
    HocketError
        For a step without a backward pass.
    """
    if batches == 1:
        return graph
    is_backward = graph.phases == Phase.BACKWARD
    if not is_backward.any():
        raise HocketError(
            f"{graph.model}: its step has no backward pass, so that no gradients are summed up; give a"
            " training step"
        )
    seconds = graph.durations_s.copy()
    once_s = seconds[graph.phases != Phase.UPDATE].sum(axis=0)
    seconds[int(np.flatnonzero(is_backward)[0])] += (batches - 1) * once_s
    return replace(graph, durations_s=seconds, batch_size=batches * graph.batch_size)
