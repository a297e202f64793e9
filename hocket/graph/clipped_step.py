"""A step that clips its gradients by their norm: no update before the norm of all of them is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hocket.errors import HocketError
from hocket.graph.csr import Csr, Indices
from hocket.graph.step import Phase, StepGraph
from hocket.graph.update_operations import awaited_gradients, is_update


def norm_operations(graph: StepGraph) -> Indices:
    """Updates that read no parameter and wait for every gradient themselves: a norm over all of them."""
    update = is_update(graph)
    parameters, operations, _ = awaited_gradients(graph, update)
    pairs = np.unique(operations * graph.num_parameters + parameters)
    num_awaited = np.bincount(pairs // max(1, graph.num_parameters), minlength=graph.num_operations)
    waits = (num_awaited == graph.produced.sum()) & (num_awaited > 0)
    return np.flatnonzero(update & waits & (graph.reads.lengths() == 0))


def behind(graph: StepGraph, operation: int) -> npt.NDArray[np.bool_]:
    """The operation, and those that need it directly or by others, (n,)."""
    found = np.zeros(graph.num_operations, bool)
    found[operation] = True
    for i in graph.order.tolist():
        found[i] |= bool(found[graph.inputs.row(i)].any())
    return found


def is_clipped(graph: StepGraph) -> bool:
    """Tell whether every update waits for a norm of all gradients."""
    trained = np.flatnonzero(graph.produced)
    reader = graph.reads.row_of_entry()
    gated = [graph.reads.indices[behind(graph, norm)[reader]] for norm in norm_operations(graph)]
    return any(np.isin(trained, parameters).all() for parameters in gated)


def clipped_for(graph: StepGraph, architecture: str) -> StepGraph:
    """:func:`clipped`, for AllReduce.

    Raises
    ------
    HocketError
        With parameter servers, which clip by themselves: that is not modelled.
    """
    if architecture == "ps":
        raise HocketError("clip: what clipping costs with parameter servers is not modelled; leave it out")
    return clipped(graph)


def clipped(graph: StepGraph) -> StepGraph:
    """``graph`` with its gradients clipped by their norm, or as it is where it says that they are.

    One more update, which takes no time, waits for every gradient, and every other update for that one. A
    trained parameter that no update reads gets an update of its own, of no time either, so that whoever reads
    the parameter in the next step waits too.
    """
    trained = np.flatnonzero(graph.produced)
    if not len(trained) or is_clipped(graph):
        return graph
    reader = graph.reads.row_of_entry()
    n, update = graph.num_operations, is_update(graph)
    updated = np.unique(graph.reads.indices[update[reader]])
    alone = np.setdiff1d(trained, updated)
    makers = np.unique(graph.produces.row_of_entry())
    norm, more = n, 1 + len(alone)
    of_alone = [f"step of {graph.parameter_names[p]}" for p in alone]
    added = [_free_name(graph, name) for name in ("clip by norm", *of_alone)]
    inputs = [[*graph.inputs.row(i).tolist(), *([norm] if update[i] else [])] for i in range(n)]
    reads = [graph.reads.row(i).tolist() for i in range(n)]
    produces = [graph.produces.row(i).tolist() for i in range(n)]
    return replace(
        graph,
        operation_names=(*graph.operation_names, *added),
        phases=np.concatenate([graph.phases, np.full(more, Phase.UPDATE, np.int8)]),
        durations_s=np.concatenate([graph.durations_s, np.zeros((more, graph.num_samples))]),
        inputs=Csr.from_rows([*inputs, makers.tolist(), *[[norm]] * len(alone)]),
        reads=Csr.from_rows([*reads, [], *([p] for p in alone.tolist())]),
        produces=Csr.from_rows([*produces, *[[]] * more]),
    )


def _free_name(graph: StepGraph, name: str) -> str:
    """``name``, or with stars behind it what no operation is called."""
    while name in graph.operation_names:
        name += "*"
    return name
