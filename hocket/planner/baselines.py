"""Orders that need no thought, and the random one that TensorFlow falls into: what to beat."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner.base import gradient_order, pull_plan


def fifo(graph: StepGraph, network: Network) -> Plan:
    """Pull in file order, the order in which the program first used the parameters."""
    del network
    return pull_plan("fifo", graph, [[i] for i in range(graph.num_parameters)])


def reverse(graph: StepGraph, network: Network) -> Plan:
    """Pull in reverse file order: the last layer first, the worst case for a forward pass."""
    del network
    return pull_plan("reverse", graph, [[i] for i in reversed(range(graph.num_parameters))])


def random(graph: StepGraph, network: Network, seed: int = 0) -> Plan:
    """Pull in one order drawn at random.

    TensorFlow draws a fresh order each step on each worker (TicTac section 2.2); a plan holds one of them,
    and :func:`hocket.sim.simulate` draws them anew with ``random_order=True``.
    """
    del network
    order = np.random.default_rng(seed).permutation(graph.num_parameters)
    return pull_plan("random", graph, [[int(i)] for i in order])


def layerwise(graph: StepGraph, network: Network) -> Plan:
    """Pull and push layer by layer, one batch a layer (iBatch section 2, the layer-by-layer baseline).

    A layer is a run of operations from one first read of parameters to the next; what its first operation
    reads first travels together, and so do the layer's gradients. Parameters that nobody reads go last.
    """
    del network
    first_reader = graph.first_reader()
    ordered = sorted(range(graph.num_parameters), key=lambda i: (first_reader[i], i))
    layers = [list(batch) for _, batch in groupby(ordered, key=lambda i: first_reader[i])]
    layer_of = {i: k for k, layer in enumerate(layers) for i in layer}
    pushes: dict[int, list[int]] = {}
    for i in gradient_order(graph):
        pushes.setdefault(layer_of[i], []).append(i)
    # A batch leaves when its last gradient is complete, so that moment gives its place.
    ready = graph.gradient_ready()
    in_order = sorted(pushes.values(), key=lambda batch: max(ready[i] for i in batch))
    return pull_plan("layerwise", graph, layers, pushes=in_order)
