"""An AllReduce step and its plan, lowered to the kernel's nodes.

Reductions share one network, one at a time; updates run on every worker. Transfers and updates of a step may
run on into the next step's forward pass.

A reduction in halves is two transfers. Updates that read no parameter look at gradients alone, as a norm
does: its reduce-scatter is enough for them. Its all-gather is for updates that read a parameter and for the
next step. Where updates wait for a norm of all gradients, one number more is reduced when all gradients are,
whole or scattered, and all-gathers and updates wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.clipped_step import norm_operations
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import FlatPlan, flatten
from hocket.graph.plan import batch_name
from hocket.graph.step import PHASE_NAMES
from hocket.graph.update_operations import awaited_gradients, early_updates, is_update
from hocket.kernel import kernel
from hocket.network import Network, halves_s, number_s, reduction_s
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
    looked_at: Indices  # (k,) parameters whose gradients an update without a parameter waits for
    lookers: Indices  # (k,) that update
    early: Indices  # updates that wait for no gradient in particular: for every window "backward"
    update: Mask  # (n,) of the operations
    clips: bool  # whether updates wait for a norm of all gradients


class AllReducePlan(NamedTuple):
    """A plan for an AllReduce, as kernels take it: R reductions of m parameters."""

    order: Indices  # (m,) parameters
    first: Indices  # (R + 1,) cuts order
    forward: Mask  # (m,) whether only first readers wait for its reduction, counted where that begins
    chunks: Indices  # (m,) of its reduction, as forward
    listed: bool  # whether reductions go strictly in order
    halves: Mask  # (m,) whether its reduction goes in halves, as forward
    rank: Indices  # (n,) which ready operation goes first
    sequence: Indices  # operations that run strictly one after the other, empty for none

    @classmethod
    def of(cls, flat: FlatPlan, rank: Indices, sequence: Indices) -> AllReducePlan:
        """``flat`` with its operations in that order."""
        it = flat.gradients
        return cls(it.order, it.first, it.forward, it.chunks, flat.listed, it.halves, rank, sequence)


@dataclass(frozen=True, kw_only=True)
class AllReduceStep:
    """The part of a step that no plan changes, its nodes numbered from 0; a plan's global nodes go in front.

    All local: the operations, then for each parameter ``gradient`` (complete), ``reduced`` and ``ready`` (for
    the next step), then ``done`` and ``begin``.
    """

    graph: StepGraph
    network: Network
    layout: AllReduceLayout


def allreduce_step(graph: StepGraph, network: Network) -> AllReduceStep:
    """Lay out ``graph`` with its updates on the workers."""
    update = is_update(graph)
    p, n = graph.num_parameters, graph.num_operations
    gradient, reduced, ready = n, n + p, n + 2 * p
    done, begin = n + 3 * p, n + 3 * p + 1
    edges = Edges()
    gradients, updates, _ = awaited_gradients(graph, update)
    gradients_too, accompanying, early = early_updates(graph, update, gradients, updates)
    edges.add(reduced + gradients_too, accompanying)
    reading = graph.reads.lengths()[updates] > 0
    edges.add(reduced + gradients[reading], updates[reading])
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
        layout=AllReduceLayout(
            gradient=gradient,
            reduced=reduced,
            done=done,
            begin=begin,
            sources=sources,
            targets=targets,
            looked_at=gradients[~reading],
            lookers=updates[~reading],
            early=early,
            update=update,
            clips=len(norm_operations(graph)) > 0,
        ),
    )


@kernel
def num_transfers(layout, plan):
    """Reductions or their first halves, whether a number is reduced behind them, and all-gathers."""
    gathers = 0
    for r in range(len(plan.first) - 1):
        gathers += plan.halves[plan.first[r]]
    return len(plan.first) - 1, int(layout.clips and gathers > 0), gathers


@kernel
def reduction_edges(layout, plan):
    """Edges of a plan's transfers: R reductions or reduce-scatters, a number or none, all-gathers; a barrier.

    These are the global nodes, in that order.
    """
    order, first, forward, listed = plan.order, plan.first, plan.forward, plan.listed
    num_reductions, numbers, gathers = num_transfers(layout, plan)
    number, barrier = num_reductions, num_reductions + numbers + gathers
    u = barrier + 1
    gradient, reduced, begin = u + layout.gradient, u + layout.reduced, u + layout.begin
    capacity = 2 * len(order) + 6 * num_reductions + 1 + len(layout.lookers) + len(layout.early)
    sources, targets = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    # What updates that only look at a gradient wait for.
    seen = np.full(layout.reduced - layout.gradient, -1, np.int64)
    count, gather = 0, num_reductions + numbers
    for r in range(num_reductions):
        last = gather if plan.halves[first[r]] else r
        waited = last if forward[first[r]] else barrier
        for k in range(first[r], first[r + 1]):
            sources[count], targets[count] = gradient + order[k], r
            sources[count + 1], targets[count + 1] = waited, reduced + order[k]
            count += 2
            seen[order[k]] = reduced + order[k] if last == r else number if numbers else r
        if not forward[first[r]]:
            sources[count], targets[count] = last, barrier
            count += 1
        if listed and r > 0:
            sources[count], targets[count] = r - 1, r
            count += 1
        if numbers:
            sources[count], targets[count] = r, number
            count += 1
        if last == gather:
            sources[count], targets[count] = number if numbers else r, gather
            count += 1
            if listed:
                before = gather - 1 if gather > num_reductions + numbers else num_reductions - 1
                sources[count], targets[count] = before, gather
                count += 1
            gather += 1
    for e in range(len(layout.lookers)):
        sources[count], targets[count] = seen[layout.looked_at[e]], u + layout.lookers[e]
        count += 1
    for update in layout.early:
        sources[count], targets[count] = barrier, u + update
        count += 1
    sources[count], targets[count] = barrier, begin + NEXT_STEP
    count += 1
    return sources[:count], targets[:count]


@kernel
def assemble_allreduce(layout, plan, num_workers):
    """The program of a plan and each local node's preference (L,)."""
    rank, sequence = plan.rank, plan.sequence
    num_reductions, numbers, gathers = num_transfers(layout, plan)
    transfers = num_reductions + numbers + gathers
    u = transfers + 1
    more_sources, more_targets = reduction_edges(layout, plan)
    num_nodes = u + layout.begin + 1
    next_ptr, next_idx = rows_of(
        np.concatenate((layout.sources + u, more_sources, u + sequence[:-1])),
        np.concatenate((layout.targets + u, more_targets, u + sequence[1:])),
        num_nodes,
    )
    lane, lane_step = np.full(num_nodes, NO_LANE), np.zeros(num_nodes, np.int64)
    n = len(rank)
    lane[:transfers] = num_workers
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
    graph, layout = step.graph, step.layout
    flat = flatten(plan, graph)
    worker_ops = np.flatnonzero(~layout.update)
    ranks, sequence = computing_order(plan, graph, worker_ops)
    rank = np.arange(graph.num_operations)
    rank[worker_ops] = ranks
    program, preference = assemble_allreduce(
        layout, AllReducePlan.of(flat, rank, worker_ops[sequence]), num_workers
    )
    durations_s = np.array(transfers_s(graph, step.network, plan, layout.clips), np.float64)
    return Lowered(
        graph=graph,
        network=step.network,
        program=program,
        preference=preference,
        durations_s=np.ascontiguousarray(graph.durations_s.T),
        global_durations_s=durations_s[None, :],
        communication_s=float(durations_s.sum()),
        occupied_s=float(durations_s.sum()),
        occupied_apart_s=float(durations_s.sum()),
        parse_s=0.0,
        done_node=program.num_globals + layout.done,
        drawn_places=worker_ops,
        drawn_group=np.arange(len(worker_ops)),
        timeline_nodes=_timeline_nodes(graph, plan, program.num_globals),
    )


def transfers_s(graph: StepGraph, network: Network, plan: Plan, clips: bool) -> list[float]:
    """Seconds of a plan's transfers: reductions or reduce-scatters, a number or none, all-gathers."""
    size = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    whole_s, gathers_s = [], []
    for reduction in plan.reductions:
        num_bytes = float(sum(size[name] for name in reduction.parameters))
        if not reduction.halves:
            whole_s.append(reduction_s(network, num_bytes, reduction.chunks))
            continue
        scatter_s, gather_s = halves_s(network, num_bytes, reduction.chunks)
        whole_s.append(scatter_s)
        gathers_s.append(gather_s)
    return [*whole_s, *([number_s(network)] if clips and gathers_s else []), *gathers_s]


def _timeline_nodes(graph: StepGraph, plan: Plan, first_op: int) -> tuple[TimelineNode, ...]:
    shown = [
        TimelineNode(first_op + i, name, PHASE_NAMES[graph.phases[i]], "compute")
        for i, name in enumerate(graph.operation_names)
    ]
    names = [batch_name(r.parameters) + (" (scatter)" if r.halves else "") for r in plan.reductions]
    gathers = [f"{batch_name(r.parameters)} (gather)" for r in plan.reductions if r.halves]
    if len(names) + len(gathers) < first_op - 1:
        names.append("norm")
    names += gathers
    shown += [TimelineNode(node, name, "reduce", "reductions") for node, name in enumerate(names)]
    return tuple(shown)
