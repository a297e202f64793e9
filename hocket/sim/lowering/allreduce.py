"""An AllReduce step and its plan, lowered to the kernel's nodes.

Reductions share one network, one at a time; updates run on every worker. Transfers and updates of a step may
run on into the next step's forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import FlatPlan, flatten
from hocket.graph.plan import batch_name
from hocket.graph.step import PHASE_NAMES
from hocket.graph.update_operations import awaited_gradients, is_update
from hocket.kernel import kernel
from hocket.network import Network, reduction_s
from hocket.sim.loop.step_program import NEXT_STEP, NO_LANE, StepProgram
from hocket.sim.lowering.lowered import (
    Edges,
    Lowered,
    Mask,
    TimelineNode,
    computing_order,
    ends_of,
    rows_of,
)


class AllReduceLayout(NamedTuple):
    """The part of an AllReduce step that no plan changes, as kernels take it; nodes numbered from 0."""

    gradient: int  # first nodes
    reduced: int
    done: int
    begin: int
    sources: Indices  # edges
    targets: Indices
    update: Mask  # (n,) of the operations


class AllReducePlan(NamedTuple):
    """A plan for an AllReduce, as kernels take it: R reductions of m parameters."""

    order: Indices  # (m,) parameters
    first: Indices  # (R + 1,) cuts order
    forward: Mask  # (m,) whether only first readers wait for its reduction, counted where that begins
    chunks: Indices  # (m,) of its reduction, as forward
    listed: bool  # whether reductions go strictly in order
    rank: Indices  # (n,) which ready operation goes first
    sequence: Indices  # operations that run strictly one after the other, empty for none

    @classmethod
    def of(cls, flat: FlatPlan, rank: Indices, sequence: Indices) -> AllReducePlan:
        """``flat`` with its operations in that order."""
        it = flat.gradients
        return cls(it.order, it.first, it.forward, it.chunks, flat.listed, rank, sequence)


@dataclass(frozen=True, kw_only=True)
class AllReduceStep:
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
    def layout(self) -> AllReduceLayout:
        """The step as kernels take it."""
        return AllReduceLayout(
            self.gradient, self.reduced, self.done, self.begin, self.sources, self.targets, self.update
        )


def allreduce_step(graph: StepGraph, network: Network) -> AllReduceStep:
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
    return AllReduceStep(
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
def reduction_edges(layout, plan):
    """Edges of a plan's reductions (global nodes 0 .. R - 1) and of their barrier (node R)."""
    order, first, forward, listed = plan.order, plan.first, plan.forward, plan.listed
    num_reductions = len(first) - 1
    barrier, u = num_reductions, num_reductions + 1
    gradient, reduced, begin = u + layout.gradient, u + layout.reduced, u + layout.begin
    capacity = 2 * len(order) + 2 * num_reductions + 1
    sources, targets = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    count = 0
    for r in range(num_reductions):
        for k in range(first[r], first[r + 1]):
            sources[count], targets[count] = gradient + order[k], r
            waited = r if forward[first[r]] else barrier
            sources[count + 1], targets[count + 1] = waited, reduced + order[k]
            count += 2
        if not forward[first[r]]:
            sources[count], targets[count] = r, barrier
            count += 1
        if listed and r > 0:
            sources[count], targets[count] = r - 1, r
            count += 1
    sources[count], targets[count] = barrier, begin + NEXT_STEP
    count += 1
    return sources[:count], targets[:count]


@kernel
def assemble_allreduce(layout, plan, num_workers):
    """The program of a plan and each local node's preference (L,)."""
    rank, sequence = plan.rank, plan.sequence
    num_reductions = len(plan.first) - 1
    u = num_reductions + 1
    more_sources, more_targets = reduction_edges(layout, plan)
    num_nodes = u + layout.begin + 1
    next_ptr, next_idx = rows_of(
        np.concatenate((layout.sources + u, more_sources, u + sequence[:-1])),
        np.concatenate((layout.targets + u, more_targets, u + sequence[1:])),
        num_nodes,
    )
    lane, lane_step = np.full(num_nodes, NO_LANE), np.zeros(num_nodes, np.int64)
    n = len(rank)
    lane[:num_reductions] = num_workers
    lane[u : u + n], lane_step[u : u + n] = 0, 1
    preference = np.zeros(num_nodes - u, np.int64)
    # Of one step, updates come after everything that leads to a gradient.
    preference[:n] = rank + np.where(layout.update, n, 0)
    program = StepProgram(u, 1, 0, 0, next_ptr, next_idx, lane, lane_step, np.zeros(num_nodes))
    return program, preference


def lower_allreduce_step(step: AllReduceStep, plan: Plan, num_workers: int) -> Lowered:
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
    program, preference = assemble_allreduce(
        step.layout, AllReducePlan.of(flat, rank, worker_ops[sequence]), num_workers
    )
    durations_s = np.array(
        [
            reduction_s(network, float(graph.parameter_bytes[batch].sum()), int(chunks))
            for batch, chunks in zip(
                reductions.batches(), reductions.chunks[reductions.first[:-1]], strict=True
            )
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
        done_node=program.num_globals + step.done,
        drawn_places=worker_ops,
        drawn_group=np.arange(len(worker_ops)),
        timeline_nodes=_timeline_nodes(graph, plan, program.num_globals),
    )


def _timeline_nodes(graph: StepGraph, plan: Plan, first_op: int) -> tuple[TimelineNode, ...]:
    shown = [
        TimelineNode(first_op + i, name, PHASE_NAMES[graph.phases[i]], "compute")
        for i, name in enumerate(graph.operation_names)
    ]
    shown += [
        TimelineNode(r, batch_name(reduction.parameters), "reduce", "network")
        for r, reduction in enumerate(plan.reductions)
    ]
    return tuple(shown)
