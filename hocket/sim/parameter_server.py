"""A parameter-server step and its plan, lowered to the kernel's nodes.

Workers run forward and backward; update operations run on the servers, each once its gradients have come
from all workers (one that the rest of the step waits for stays on the worker). Every parameter is pulled,
every gradient pushed; a batch whose parameters live on several servers travels as one part per server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.dependencies import dependencies
from hocket.graph.flat_plan import flatten
from hocket.graph.step import PHASE_NAMES
from hocket.graph.timeline import Kind
from hocket.graph.updates import awaited_gradients, is_update
from hocket.kernel import kernel
from hocket.network import Network, assign_servers
from hocket.sim._kernel import NEXT_STEP, NO_LANE, Program
from hocket.sim.lowered import (
    Edges,
    Floats,
    Lowered,
    Mask,
    Shown,
    batch_name,
    computing_order,
    ends_of,
    rows_of,
)


@dataclass(frozen=True, kw_only=True)
class ServerStep:
    """What of a step no plan changes: operations, and a node for each parameter's arrivals.

    Global nodes: the server operations, then for each parameter ``arrived`` (from all workers) and
    ``updated``. Local nodes: the worker operations, then for each parameter ``pulled``, ``gradient``
    (complete) and ``free`` (of readers), then ``done`` and ``begin``; a plan's parts follow.
    ``overlapping``: whether steps overlap (a barrier per parameter).
    """

    graph: StepGraph
    network: Network
    overlapping: bool
    home: Indices
    bits: Floats
    worker_ops: Indices
    server_ops: Indices
    server_of_op: Indices
    sources: Indices
    targets: Indices
    arrived: int
    updated: int
    pulled: int
    gradient: int
    free: int
    done: int
    begin: int
    parts: int

    @property
    def layout(self) -> tuple[int, int, int, int, int, int, bool]:
        """As kernels take it: first of arrived, updated, pulled, gradient, free, parts; overlapping."""
        return (
            self.arrived,
            self.updated,
            self.pulled,
            self.gradient,
            self.free,
            self.parts,
            self.overlapping,
        )


def server_step(graph: StepGraph, network: Network, *, overlapping: bool) -> ServerStep:
    """Lay out ``graph`` on the servers of ``network``.

    Raises
    ------
    HocketError
        When there are more servers than parameters.
    """
    home = assign_servers(graph.parameter_bytes.tolist(), network.num_servers)
    update = is_update(graph)
    worker_ops, server_ops = np.flatnonzero(~update), np.flatnonzero(update)
    p, n, u = graph.num_parameters, len(worker_ops), len(server_ops)
    arrived, updated = u, u + p
    first_op = u + 2 * p
    pulled, gradient, free = first_op + n, first_op + n + p, first_op + n + 2 * p
    done, begin = free + p, free + p + 1
    node = np.empty(graph.num_operations, np.int64)
    node[worker_ops], node[server_ops] = first_op + np.arange(n), np.arange(u)

    edges = Edges()
    gradients, updates, stands_for = awaited_gradients(graph, update)
    edges.add(arrived + gradients, node[updates])
    user, source = graph.inputs.row_of_entry(), graph.inputs.indices
    edges.add(node[source[~stands_for]], node[user[~stands_for]])
    reader, read = graph.reads.row_of_entry(), graph.reads.indices
    edges.add(pulled + read[~update[reader]], node[reader[~update[reader]]])
    edges.add(node[graph.produces.row_of_entry()], gradient + graph.produces.indices)
    if overlapping:
        edges.add(node[reader[~update[reader]]], free + read[~update[reader]])
        edges.add(node[reader[update[reader]]], updated + read[update[reader]])
        edges.add(arrived + np.flatnonzero(graph.produced), updated + np.flatnonzero(graph.produced))
        edges.add(pulled + np.arange(p), done)
        last, first = ends_of(graph, ~update)
        edges.add(node[last], done)
        edges.add(done, begin + NEXT_STEP)
        edges.add(begin, node[first])
        edges.add(begin, free + np.arange(p))
    sources, targets = edges.arrays()
    return ServerStep(
        graph=graph,
        network=network,
        overlapping=overlapping,
        home=home,
        bits=8.0 * graph.parameter_bytes.astype(np.float64),
        worker_ops=worker_ops,
        server_ops=server_ops,
        server_of_op=_place_server_ops(graph, update, home),
        sources=sources,
        targets=targets,
        arrived=arrived,
        updated=updated,
        pulled=pulled,
        gradient=gradient,
        free=free,
        done=done,
        begin=begin,
        parts=begin + 1,
    )


def _place_server_ops(graph: StepGraph, on_server: Mask, home: Indices) -> Indices:
    """Each server operation's server: its first parameter's, else its first input's, else the first one."""
    place = np.zeros(graph.num_operations, dtype=np.int64)
    for i in graph.order[on_server[graph.order]].tolist():
        # An input on the worker is known to servers by the gradients it completes.
        near = [home[p] for p in graph.reads.row(i)]
        for j in graph.inputs.row(i).tolist():
            near += [place[j]] if on_server[j] else [home[p] for p in graph.produces.row(j)]
        place[i] = near[0] if near else 0
    servers: Indices = place[on_server]
    return servers


@kernel
def cut_batches(order, first, home, bits, num_servers):
    """Cut batches by where their parameters live.

    order (m,): parameters in the order of the batches; first (batches + 1,) cuts it; home, bits (p,). Returns
    the part of each parameter, -1 for one that does not travel; each part's server, batch and bits; and the
    first part of each batch (batches + 1,): parts are numbered batch by batch.
    """
    part_of = np.full(len(home), -1, np.int64)
    part_server = np.empty(len(order), np.int64)
    part_batch = np.empty(len(order), np.int64)
    part_bits = np.zeros(len(order))
    first_part = np.zeros(len(first), np.int64)
    part_at = np.full(num_servers, -1, np.int64)
    num_parts = 0
    for b in range(len(first) - 1):
        for k in range(first[b], first[b + 1]):
            i = order[k]
            part = part_at[home[i]]
            if part < first_part[b]:
                part = part_at[home[i]] = num_parts
                part_server[part], part_batch[part] = home[i], b
                num_parts += 1
            part_of[i] = part
            part_bits[part] += bits[i]
        first_part[b + 1] = num_parts
    return part_of, part_server[:num_parts], part_batch[:num_parts], part_bits[:num_parts], first_part


@kernel
def transfer_edges(pulls, pushes, push_order, push_first, listed, layout):
    """Edges of a plan's parts; pulls, pushes: as ``cut_batches`` returns them.

    layout: as ``ServerStep.layout``.
    """
    arrived, updated, pulled, gradient, free, first_pull, overlapping = layout
    pull_of, pull_server, _, _, _ = pulls
    push_of, push_server, _, _, first_part = pushes
    first_push = first_pull + len(pull_server)
    p = len(pull_of)
    capacity = 4 * p + len(push_server)
    for b in range(len(push_first) - 1):
        capacity += (push_first[b + 1] - push_first[b]) * (first_part[b + 1] - first_part[b])
    sources, targets = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    count = 0
    for i in range(p):
        sources[count], targets[count] = first_pull + pull_of[i], pulled + i
        count += 1
        if overlapping:
            sources[count], targets[count] = free + i, first_pull + pull_of[i] + NEXT_STEP
            sources[count + 1], targets[count + 1] = updated + i, first_pull + pull_of[i] + NEXT_STEP
            count += 2
        if push_of[i] >= 0:
            sources[count], targets[count] = first_push + push_of[i], arrived + i
            count += 1
    # A part waits for every gradient of its whole batch, also of those that go to other servers.
    for b in range(len(push_first) - 1):
        for k in range(push_first[b], push_first[b + 1]):
            for part in range(first_part[b], first_part[b + 1]):
                sources[count], targets[count] = gradient + push_order[k], first_push + part
                count += 1
    if listed:
        before = np.full(push_server.max() + 1 if len(push_server) else 0, -1, np.int64)
        for part in range(len(push_server)):
            s = push_server[part]
            if before[s] >= 0:
                sources[count], targets[count] = before[s], first_push + part
                count += 1
            before[s] = first_push + part
    return sources[:count], targets[:count]


@kernel
def assemble_server(
    layout,
    sources,
    targets,
    home,
    bits,
    server_of_op,
    pull_order,
    pull_first,
    push_order,
    push_first,
    listed,
    sequence,
    rank,
    num_workers,
    num_servers,
):
    """The program of a plan, each local node's preference (L,), and the parts of pulls and pushes.

    layout: as ``ServerStep.layout``; sources, targets: edges that no plan changes; the orders and firsts as
    ``cut_batches`` takes them; sequence: worker operations that run strictly one after the other, empty for
    none; rank (n,): which ready one goes first.
    """
    arrived, updated, pulled, _, _, first_part, _ = layout
    pulls = cut_batches(pull_order, pull_first, home, bits, num_servers)
    pushes = cut_batches(push_order, push_first, home, bits, num_servers)
    more_sources, more_targets = transfer_edges(pulls, pushes, push_order, push_first, listed, layout)
    first_op, n, u = pulled - len(rank), len(rank), updated + len(home)
    num_pulls, num_pushes = len(pulls[1]), len(pushes[1])
    num_nodes = first_part + num_pulls + num_pushes
    next_ptr, next_idx = rows_of(
        np.concatenate((sources, more_sources, first_op + sequence[:-1])),
        np.concatenate((targets, more_targets, first_op + sequence[1:])),
        num_nodes,
    )
    lane, lane_step = np.full(num_nodes, NO_LANE), np.zeros(num_nodes, np.int64)
    preference, part_bits = np.zeros(num_nodes, np.int64), np.zeros(num_nodes)
    lane[:arrived] = num_workers + server_of_op
    lane[u : u + n], lane_step[u : u + n], preference[u : u + n] = 0, 1, rank
    first_channel = num_workers + num_servers
    middle = first_part + num_pulls
    lane[first_part:middle] = first_channel + pulls[1]
    lane[middle:] = first_channel + num_workers * num_servers + pushes[1]
    lane_step[first_part:] = num_servers
    part_bits[first_part:middle], part_bits[middle:] = pulls[3], pushes[3]
    preference[first_part:middle], preference[middle:] = np.arange(num_pulls), np.arange(num_pushes)
    program = Program(u, num_servers, num_servers, False, next_ptr, next_idx, lane, lane_step, part_bits)
    return program, preference[u:].copy(), pulls, pushes


def lower_server_step(step: ServerStep, plan: Plan, num_workers: int) -> Lowered:
    """Lower ``plan``, which fits the step, for ``num_workers`` simulated ones.

    Raises
    ------
    HocketError
        When the plan's compute order leaves out an operation that others wait for.
    """
    graph, network = step.graph, step.network
    flat = flatten(plan, graph)
    rank, sequence = computing_order(plan, graph, step.worker_ops)
    program, preference, pulls, pushes = assemble_server(
        step.layout,
        step.sources,
        step.targets,
        step.home,
        step.bits,
        step.server_of_op,
        flat.pulls.order,
        flat.pulls.first,
        flat.gradients.order,
        flat.gradients.first,
        flat.listed,
        sequence,
        rank,
        num_workers,
        network.num_servers,
    )
    ways_s = [_occupied_s(step, pulls), _occupied_s(step, pushes)]
    return Lowered(
        graph=graph,
        network=network,
        program=program,
        preference=preference,
        durations_s=np.ascontiguousarray(graph.durations_s[step.worker_ops].T),
        global_durations_s=np.ascontiguousarray(graph.durations_s[step.server_ops].T),
        communication_s=max(ways_s) if step.overlapping else sum(ways_s),
        occupied_s=sum(ways_s) if not step.overlapping and _in_turn(graph) else max(ways_s),
        done=step.done if step.overlapping else -1,
        drawn=step.parts - program.num_globals + np.arange(len(pulls[1])),
        drawn_group=pulls[2],
        shown=_shown(step, plan, pulls, pushes),
    )


def _occupied_s(step: ServerStep, parts: tuple[Indices, ...]) -> float:
    """For how long transfers in one direction occupy what they occupy longest.

    That is a server's interface, which carries every worker's bytes; a worker's interface; or a channel,
    which alone is also occupied by startups.
    """
    network = step.network
    _, server, _, bits, _ = parts
    moving_s = np.bincount(server, weights=bits, minlength=network.num_servers) / network.bandwidth_bps
    channels_s = np.bincount(server, minlength=network.num_servers) * network.startup_s + moving_s
    return float(max(network.num_workers * moving_s.max(), moving_s.sum(), channels_s.max()))


def _in_turn(graph: StepGraph) -> bool:
    """Whether every gradient needs every parameter, so that pushes only start when all pulls are over."""
    needs = dependencies(graph)
    num_needed = needs.rows().lengths()[needs.class_of]
    return bool((num_needed[graph.produces.lengths() > 0] == graph.num_parameters).all())


def _shown(
    step: ServerStep, plan: Plan, pulls: tuple[Indices, ...], pushes: tuple[Indices, ...]
) -> tuple[Shown, ...]:
    graph = step.graph
    first_op = step.pulled - len(step.worker_ops)
    shown = [
        Shown(first_op + k, graph.operation_names[op], PHASE_NAMES[graph.phases[op]], "compute")
        for k, op in enumerate(step.worker_ops.tolist())
    ]
    first = step.parts
    kinds: tuple[tuple[Kind, tuple[Indices, ...], list[str]], ...] = (
        ("pull", pulls, [batch_name(pull.parameters) for pull in plan.pulls]),
        ("push", pushes, [batch_name(push.parameters) for push in plan.pushes]),
    )
    for kind, parts, names in kinds:
        for part in np.argsort(parts[1], kind="stable").tolist():
            lane = kind if step.network.num_servers == 1 else f"{kind}, server {parts[1][part]}"
            shown.append(Shown(first + part, names[parts[2][part]], kind, lane))
        first += len(parts[1])
    for k in np.argsort(step.server_of_op, kind="stable").tolist():
        op = step.server_ops[k]
        shown.append(Shown(k, graph.operation_names[op], "update", f"server {step.server_of_op[k]}"))
    return tuple(shown)
