"""Orders that need no thought, and the random one that TensorFlow falls into: what to beat."""

from __future__ import annotations

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner.layer_chain import gradient_layers, read_layers
from hocket.planner.pull_plan import gradient_order, pull_plan


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

    A layer's parameters travel together, and so do its gradients; what a layer is, says
    :mod:`hocket.planner.layer_chain`.
    """
    del network
    return pull_plan("layerwise", graph, read_layers(graph), pushes=gradient_layers(graph))


def default(graph: StepGraph, network: Network) -> Plan:
    """Pull everything at once, push everything at once, overlap nothing (iBatch section 2, default PS)."""
    del network
    pulls, pushes = list(range(graph.num_parameters)), gradient_order(graph)
    return pull_plan("default", graph, _together(pulls), pushes=_together(pushes))


def poseidon(graph: StepGraph, network: Network) -> Plan:
    """Push layer by layer during the backward pass, pull everything at once (wait-free backpropagation).

    Source: iBatch, sections 1 and 2, on Poseidon (Zhang et al., USENIX ATC 2017). Poseidon's hybrid
    communication, factors instead of gradients of dense layers, changes what is sent and is left out.
    """
    del network
    pulls = list(range(graph.num_parameters))
    return pull_plan("poseidon", graph, _together(pulls), pushes=gradient_layers(graph))


def _together(parameters: list[int]) -> list[list[int]]:
    """One batch of all of them; none of nothing, since no transfer is empty."""
    return [parameters] if parameters else []
