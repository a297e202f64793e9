"""Caramel: AllReduce with the whole iteration as transfer window (Caramel section 4).

Four stages, each in a file of its own but the last: the order of gradients (4.1), batches of small ones
(4.2), the pass that each batch travels beside (4.3), and in how many chunks (4.4, with the batches).

A batch is the gradients that travel together, one or more; section 4.3 calls it a batched group. A
:class:`hocket.Reduction` of the plan is the AllReduce of one batch.

Differs from the paper
----------------------
* Beside what the stages' files say: reductions take what the network's collective costs, chunks included,
  when they are placed; the fitted line serves the batches and the depth alone.
* A step that clips by norm leaves whole reductions no forward pass. Instead of being placed they are cut in
  halves, as far as that gains, and what is ready leaves by first read.
"""

from __future__ import annotations

import numpy as np

from hocket.graph import Plan, Reduction, StepGraph
from hocket.network import Network, reduction_s
from hocket.planner.caramel.batch_placement import BatchTimes, place_batches
from hocket.planner.caramel.completion_order import best_order, compute_order, control_edges
from hocket.planner.caramel.gradient_batches import batch_gradients, depth_of, fit_network
from hocket.planner.halves import by_first_read, choose_halves, halved_times
from hocket.planner.pull_plan import gradient_order
from hocket.planner.worker_processor import serial_times, step_operations


def caramel(
    graph: StepGraph,
    network: Network,
    *,
    order: bool = True,
    batching: bool = True,
    windows: bool = True,
    depth: bool = True,
    halves: bool = False,
) -> Plan:
    """Plan the reductions of ``graph``; each stage can be left out (the ablation of Figures 11 and 12).

    Without ``order`` operations run and gradients appear as in the program; without ``batching`` each
    gradient travels alone; without ``windows`` all travel before the next step, as they become ready; without
    ``depth`` all travel whole. ``halves``: of a step that clips, in place of the third stage, cut in halves
    what gains by it (:mod:`hocket.planner.halves`).
    """
    gradients = best_order(graph) if order else gradient_order(graph)
    ordered = compute_order(graph, control_edges(graph, gradients)) if order else step_operations(graph)
    times = serial_times(graph, ordered)
    model = fit_network(network)
    batches = [[g] for g in gradients]
    if batching:
        batches = batch_gradients(graph, gradients, times.ready_s, model)

    sizes = np.array([graph.parameter_bytes[batch].sum() for batch in batches], dtype=np.int64)
    chunks = [depth_of(size, network, model) if depth else 1 for size in sizes.tolist()]
    ready_s = np.array([times.ready_s[batch].max() for batch in batches])
    backward: list[int] = np.argsort(ready_s, kind="stable").tolist()
    forward: list[int] = []
    in_halves = [False] * len(batches)
    if halves:
        in_halves = choose_halves(
            halved_times(graph, network, times, batches, sizes.tolist(), chunks)
        ).tolist()
        backward, forward = [], by_first_read(times, batches)
    elif windows:
        travel_s = [reduction_s(network, size, c) for size, c in zip(sizes.tolist(), chunks, strict=True)]
        used_s = np.array([times.used_s[batch].min() for batch in batches])
        placed = BatchTimes(sizes=sizes, ready_s=ready_s, used_s=used_s, travel_s=np.array(travel_s))
        backward, forward = place_batches(placed, times.total_s)

    names = graph.parameter_names
    return Plan(
        policy="caramel",
        model=graph.model,
        architecture="allreduce",
        reductions=tuple(
            Reduction(
                parameters=tuple(names[g] for g in batches[k]),
                chunks=chunks[k],
                window="forward" if i >= len(backward) else "backward",
                halves=in_halves[k],
            )
            for i, k in enumerate(backward + forward)
        ),
        compute_order=tuple(graph.operation_names[i] for i in ordered) if order else None,
        issue="ready" if halves else "listed",
    )
