"""A step as a chain of layers, which is what iBatch (section 3) plans: what each pulls, pushes and computes.

A layer is a run of operations from one first read of parameters to the next; it holds the parameters that its
first operation reads first. Parameters that nobody reads are the last layer, which computes nothing.
Operations before the first read wait for no layer and are in none.

Differs from the paper
----------------------
* The paper's networks are chains. Here operations count in the order of the step file, so where branches of
  a network could overtake each other the chain is an approximation.
* A transfer counts with the bandwidth that one worker gets when all are busy, from all servers together.
  That is exact with one server; several hold layers unevenly, and a small layer is on one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from hocket.graph import Phase, StepGraph
from hocket.graph.step import Seconds
from hocket.network import Network, fair_share_bps
from hocket.planner.pull_plan import gradient_order


@dataclass(frozen=True, eq=False, kw_only=True)
class Layers:
    """L layers in the order in which they run.

    ``parameters``: the parameter indices of each; ``transfer_s`` (L,): seconds that their bytes move, startup
    not included; ``compute_s`` (L,): seconds of the layer's operations, the least of their samples.
    """

    parameters: list[list[int]]
    transfer_s: Seconds
    compute_s: Seconds


def read_layers(graph: StepGraph) -> list[list[int]]:
    """The parameters of each layer, in the order of their first reads; those that nobody reads go last."""
    first = graph.first_reader()
    ordered = sorted(range(graph.num_parameters), key=lambda i: (first[i], i))
    return [list(layer) for _, layer in groupby(ordered, key=lambda i: first[i])]


def gradient_layers(graph: StepGraph) -> list[list[int]]:
    """The trained parameters of each layer of :func:`read_layers`, layers in the order of completion.

    A layer is complete when its last gradient is; within it parameters stand as their gradients appear.
    """
    layer_of = {i: k for k, layer in enumerate(read_layers(graph)) for i in layer}
    found: dict[int, list[int]] = {}
    for i in gradient_order(graph):
        found.setdefault(layer_of[i], []).append(i)
    ready = graph.gradient_ready()
    return sorted(found.values(), key=lambda layer: max(ready[i] for i in layer))


def forward_layers(graph: StepGraph, network: Network) -> Layers:
    """Layers that the forward pass waits for; ``compute_s`` is that of the layer's forward operations."""
    layers = read_layers(graph)
    first = graph.first_reader()
    bounds = [int(first[layer[0]]) for layer in layers] + [graph.num_operations]
    return _layers(graph, network, layers, Phase.FORWARD, bounds)


def backward_layers(graph: StepGraph, network: Network) -> Layers:
    """Layers that pushes wait for, in order of completion.

    ``compute_s`` is that of the backward operations since the layer before was complete (of all of them for
    the first layer), until this one is.
    """
    layers = gradient_layers(graph)
    ready = graph.gradient_ready()
    bounds = [0] + [int(max(ready[i] for i in layer)) + 1 for layer in layers]
    return _layers(graph, network, layers, Phase.BACKWARD, bounds)


def _layers(
    graph: StepGraph, network: Network, layers: list[list[int]], phase: Phase, bounds: Sequence[int]
) -> Layers:
    """``bounds`` (L + 1,): layer k computes what ``order[bounds[k]:bounds[k + 1]]`` holds of ``phase``."""
    compute_s = np.where(graph.phases == phase, graph.oracle_s, 0.0)[graph.order]
    bits = [8 * int(graph.parameter_bytes[layer].sum()) for layer in layers]
    return Layers(
        parameters=layers,
        transfer_s=np.array(bits, dtype=np.float64) / (network.num_servers * fair_share_bps(network)),
        compute_s=np.array([compute_s[a:b].sum() for a, b in pairwise(bounds)], dtype=np.float64),
    )
