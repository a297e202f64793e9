"""P3: slices sent by layer priority, across steps.

Source: Jayarajan et al., Priority-based Parameter Propagation for Distributed DNN Training, MLSys 2019.
Large parameters are cut into slices; of the slices that are ready, those of the layer that the next forward
pass needs first go first, in both directions; and a parameter is pulled again as soon as it is updated.

Differs from the paper
----------------------
* Slices of at most 4 MB, all slices of a parameter equal; the paper finds the size by trial.
"""

from __future__ import annotations

from hocket.graph import Plan, Pull, Push, StepGraph
from hocket.graph.format_rules import MOST_CHUNKS
from hocket.network import Network
from hocket.planner.layer_chain import read_layers

SLICE_BYTES = 4_000_000
"""The most bytes of one slice."""


def p3(graph: StepGraph, network: Network) -> Plan:
    """Pull and push slices by the layer that is read first; the network does not matter to P3.

    A layer's place is the priority of its pulls; parameters that nobody reads go last.
    """
    del network
    names = graph.parameter_names
    # Rounded up; an empty parameter is one transfer all the same.
    chunks = [min(max(1, -(-int(size) // SLICE_BYTES)), MOST_CHUNKS) for size in graph.parameter_bytes]
    ranked = [(k, i) for k, layer in enumerate(read_layers(graph)) for i in layer]
    return Plan(
        policy="p3",
        model=graph.model,
        architecture="ps",
        pulls=tuple(Pull(parameters=(names[i],), priority=k, chunks=chunks[i]) for k, i in ranked),
        pushes=tuple(Push(parameters=(names[i],), chunks=chunks[i]) for _, i in ranked if graph.produced[i]),
        compute_order=None,
        barrier="parameter",
    )
