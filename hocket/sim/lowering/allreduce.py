"""An AllReduce step and its plan, lowered to the kernel's nodes.

Reductions share one network, one at a time; updates run on every worker. Transfers and updates of a step may
run on into the next step's forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import flatten
from hocket.graph.plan import batch_name
from hocket.graph.step import PHASE_NAMES
from hocket.graph.update_operations import awaited_gradients, is_update
from hocket.kernel import kernel
from hocket.network import Network, reduction_s
from hocket.sim.loop.event_loop import NEXT_STEP, NO_LANE, StepProgram
from hocket.sim.lowering.lowered import (
    Edges,
    Lowered,
    Mask,
    Shown,
    computing_order,
    ends_of,
    rows_of,
)


@dataclass(frozen=True, kw_only=True)
class ReducedStep:
    """The part of a step that no plan changes, its nodes numbered from 0; a plan's global nodes go in front.

    All local: the operations, then for each parameter ``gradient`` (complete), ``reduced`` and ``ready`` (for
    the next step), then ``done`` and ``begin``.
    """

    graph: StepGraph
    network: Network
    update: Mask
    sources: Indices
    targets: Indices
    gradient: int
    reduced: int
    ready: int
    done: int
    begin: int

    @property
    def layout(self) -> tuple[int, int, int]:
        """First nodes as the kernels take them: gradient, reduced, begin."""
        return self.gradient, self.reduced, self.begin


def reduced_step(graph: StepGraph, network: Network) -> ReducedStep:
    """Lay out ``graph`` with its updates on the workers."""
    update = is_update(graph)
    p, n = graph.num_parameters, graph.num_operations
    gradient, reduced, ready = n, n + p, n + 2 * p
    done, begin = n + 3 * p, n + 3 * p + 1
    edges = Edges()
    gradients, updates, _ = awaited_gradients(graph, update)
    edges.add(reduced + gradients, updates)
    edges.add(graph.inputs.indices, graph.inputs.row_of_entry())
    maker, made = graph.produces.row_of_entry(), graph.produces.indices
    edges.add(maker, gradient + made)
    # The gradient's buffer is written again once it has been reduced.
    edges.add(reduced + made, maker + NEXT_STEP)
    trained = np.flatnonzero(graph.produced)
    edges.add(reduced + trained, ready + trained)
    reader, read = graph.reads.row_of_entry(), graph.reads.indices
    edges.add(reader[update[reader]], ready + read[update[reader]])
    main = ~update[reader]
    edges.add(ready + read[main], reader[main] + NEXT_STEP)
    last, first = ends_of(graph, ~update)
    edges.add(last, done)
    edges.add(done, begin + NEXT_STEP)
    edges.add(begin, first)
    sources, targets = edges.arrays()
    return ReducedStep(
        graph=graph,
        network=network,
        update=update,
        sources=sources,
        targets=targets,
        gradient=gradient,
        reduced=reduced,
        ready=ready,
        done=done,
        begin=begin,
    )


@kernel
def reduction_edges(order, first, forward, listed, gradient, reduced, begin):
    """Edges of a plan's reductions (global nodes 0 .. R - 1) and of their barrier (node R).

    order (m,): parameters, cut by first (R + 1,); forward (R,): whether only first readers wait; gradient,
    reduced, begin: first nodes, R + 1 past those of the step.
    """
    num_reductions = len(first) - 1
    barrier = num_reductions
    capacity = 2 * len(order) + 2 * num_reductions + 1
    sources, targets = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    count = 0
    for r in range(num_reductions):
        for k in range(first[r], first[r + 1]):
            sources[count], targets[count] = gradient + order[k], r
            sources[count + 1], targets[count + 1] = r if forward[r] else barrier, reduced + order[k]
            count += 2
        if not forward[r]:
            sources[count], targets[count] = r, barrier
            count += 1
        if listed and r > 0:
            sources[count], targets[count] = r - 1, r
            count += 1
    sources[count], targets[count] = barrier, begin + NEXT_STEP
    count += 1
    return sources[:count], targets[:count]


@kernel
def assemble_reduced(
    step_layout, sources, targets, update, order, first, forward, listed, sequence, rank, num_workers
):
    """The program of a plan and each local node's preference (L,).

    step_layout: gradient, reduced and begin of the step; sources, targets: edges that no plan changes; update
    (n,); order, first, forward: as ``reduction_edges`` takes them; sequence: operations that run strictly one
    after the other, empty for none; rank (n,): which ready one goes first.
    """
    gradient, reduced, begin = step_layout
    num_reductions = len(first) - 1
    u = num_reductions + 1
    more_sources, more_targets = reduction_edges(
        order, first, forward, listed, u + gradient, u + reduced, u + begin
    )
    num_nodes = u + begin + 1
    next_ptr, next_idx = rows_of(
        np.concatenate((sources + u, more_sources, u + sequence[:-1])),
        np.concatenate((targets + u, more_targets, u + sequence[1:])),
        num_nodes,
    )
    lane, lane_step = np.full(num_nodes, NO_LANE), np.zeros(num_nodes, np.int64)
    n = len(rank)
    lane[:num_reductions] = num_workers
    lane[u : u + n], lane_step[u : u + n] = 0, 1
    preference = np.zeros(num_nodes - u, np.int64)
    # Of one step, updates come after everything that leads to a gradient.
    preference[:n] = rank + np.where(update, n, 0)
    program = StepProgram(u, 1, 0, 0, next_ptr, next_idx, lane, lane_step, np.zeros(num_nodes))
    return program, preference


def lower_reduced_step(step: ReducedStep, plan: Plan, num_workers: int) -> Lowered:
    """Lower ``plan``, which fits the step, for ``num_workers`` simulated ones.

    Raises
    ------
    HocketError
        When the plan's compute order leaves out an operation that others wait for.
    """
    graph, network = step.graph, step.network
    flat = flatten(plan, graph)
    reductions = flat.gradients
    worker_ops = np.flatnonzero(~step.update)
    ranks, sequence = computing_order(plan, graph, worker_ops)
    rank = np.arange(graph.num_operations)
    rank[worker_ops] = ranks
    first = reductions.first
    program, preference = assemble_reduced(
        step.layout,
        step.sources,
        step.targets,
        step.update,
        reductions.order,
        first,
        reductions.forward[first[:-1]],
        flat.listed,
        worker_ops[sequence],
        rank,
        num_workers,
    )
    durations_s = np.array(
        [
            reduction_s(network, float(graph.parameter_bytes[batch].sum()), int(chunks))
            for batch, chunks in zip(reductions.batches(), reductions.chunks[first[:-1]], strict=True)
        ],
        np.float64,
    )
    return Lowered(
        graph=graph,
        network=network,
        program=program,
        preference=preference,
        durations_s=np.ascontiguousarray(graph.durations_s.T),
        global_durations_s=durations_s[None, :],
        communication_s=float(durations_s.sum()),
        occupied_s=float(durations_s.sum()),
        occupied_apart_s=float(durations_s.sum()),
        parse_s=0.0,
        done=program.num_globals + step.done,
        drawn=worker_ops,
        drawn_group=np.arange(len(worker_ops)),
        shown=_shown(graph, plan, program.num_globals),
    )


def _shown(graph: StepGraph, plan: Plan, first_op: int) -> tuple[Shown, ...]:
    shown = [
        Shown(first_op + i, name, PHASE_NAMES[graph.phases[i]], "compute")
        for i, name in enumerate(graph.operation_names)
    ]
    shown += [
        Shown(r, batch_name(reduction.parameters), "reduce", "network")
        for r, reduction in enumerate(plan.reductions)
    ]
    return tuple(shown)
