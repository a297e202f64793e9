"""Lower bounds of a step, whatever the plan; the two kinds of steps have a file each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from hocket.graph import StepGraph
from hocket.graph.csr import Indices
from hocket.network import Network
from hocket.sim.bounds.barrier import step_bounds
from hocket.sim.bounds.overlapping import period_bound
from hocket.sim.bounds.sharded_bound import sharded_bound
from hocket.sim.lowering.lowered import Floats


@dataclass(frozen=True)
class Bound:
    """Seconds that no plan beats: ``shared`` by all workers, ``each`` (samples,) by measured step."""

    shared: float
    each: Floats

    def of(self, samples: Indices) -> float:
        """The bound of a step in which workers repeat the measured steps ``samples`` (W,)."""
        return max(self.shared, float(self.each[samples].max()))


@lru_cache(maxsize=16)
def lower_bound(
    graph: StepGraph,
    network: Network,
    architecture: Literal["ps", "allreduce", "fsdp"],
    barrier: Literal["step", "parameter"],
    lockstep: bool,
    halves: bool = False,
) -> Bound:
    """The bound that no order, batching, chunking or window of ``graph`` on ``network`` beats.

    Parameters stay on their servers and travel whole; slices are bounded as parameters of their own.
    ``lockstep``: all workers do the same at the same time, as they do under one plan when they all repeat one
    measured step; with a barrier per step it is enough that they all pull in one order. Under orders that
    each draws for itself one worker may be served before the others. ``halves``: reductions may go in
    halves; else none does.
    """
    if architecture == "fsdp":
        return Bound(*sharded_bound(graph, network))
    if architecture == "ps" and barrier == "step":
        return Bound(*step_bounds(graph, network, lockstep=lockstep))
    return Bound(period_bound(graph, network, architecture, lockstep, halves), np.zeros(graph.num_samples))
