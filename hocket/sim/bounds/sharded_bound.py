"""A lower bound of a fully sharded step: whatever its units, their order and what is prefetched.

Every byte of the parameters is gathered once before an operation reads it, and every gradient is scattered
once when it is complete, by collectives that follow one another. A collective's time grows with its bytes and
is concave, so that no way of cutting them is shorter than one of all. Parameters that memory cannot keep from
the forward to the backward pass are gathered twice.
"""

from __future__ import annotations

import numpy as np

from hocket.graph import StepGraph
from hocket.network import Network
from hocket.sim.lowering.lowered import Floats
from hocket.sim.lowering.sharded_step import ShardedStep


def sharded_bound(graph: StepGraph, network: Network, kept_bytes: float = np.inf) -> tuple[float, Floats]:
    """Seconds that no plan beats: ``shared`` by all workers, and (samples,) by measured step.

    ``kept_bytes``: the most of full parameters that a worker can hold when the backward pass begins.
    """
    step = ShardedStep.of(graph, network)
    groups, order = step.groups, step.places.order
    computed = np.concatenate((np.zeros((graph.num_samples, 1)), step.durations_s.cumsum(axis=1)), axis=1)
    total_s, num_places = computed[:, -1], len(order.operations)
    gathered, scattered = step.places.first_reads(), step.places.last_gradients()
    # Before the operation at a place begins all that it and those before it read has been gathered; gradients
    # complete there or later are scattered behind it, before updates.
    bound_s = total_s.copy()
    updates_s = total_s - computed[:, num_places]
    for place, size in gathered:
        bound_s = np.maximum(bound_s, groups.gather_s(size) + total_s - computed[:, place])
    for place, size in scattered:
        bound_s = np.maximum(bound_s, computed[:, place] + groups.scatter_s(size) + updates_s)
    parameters, gradients = float(gathered[-1][1]), float(scattered[0][1]) if scattered else 0.0
    again = max(0.0, step.places.backward_bytes() - kept_bytes)
    shared_s = groups.gather_s(parameters) + groups.scatter_s(gradients)
    shared_s += groups.gather_s(again) if again else 0.0
    if not groups.apart and gradients:
        shared_s += groups.reduce_s(gradients)
    return float(shared_s + updates_s.min()), bound_s
