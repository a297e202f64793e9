"""A plan for parameter servers, lowered: transfers, the parsing of messages, and what waits for them.

Where receiving costs something, a part is a message that is parsed before anyone can use it: a pull on the
worker's processor, directly before the first operation there that reads any of it; a push by the server, on a
receiver for each worker, so that workers do not wait for each other's messages. Of the messages that wait at
a receiver the first in the plan is parsed first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.dependencies import dependencies
from hocket.graph.flat_plan import flatten
from hocket.graph.plan import batch_name
from hocket.graph.step import PHASE_NAMES
from hocket.graph.timeline import Kind
from hocket.kernel import kernel
from hocket.network import Network
from hocket.sim.loop.step_program import NEXT_STEP, NO_LANE, StepProgram
from hocket.sim.lowering.lowered import Floats, Lowered, TimelineNode, computing_order, rows_of
from hocket.sim.lowering.parameter_server import ServerStep, cut_batches


class ServerPlan(NamedTuple):
    """A plan for parameter servers, as kernels take it; orders and firsts as ``cut_batches`` takes them."""

    pull_order: Indices
    pull_first: Indices
    push_order: Indices
    push_first: Indices
    listed: bool  # whether pushes leave strictly in order
    rank: Indices  # (n,) which ready worker operation goes first
    sequence: Indices  # worker operations that run strictly one after the other, empty for none


class ServerCosts(NamedTuple):
    """The number of servers, and the cost of receiving a part."""

    num_servers: int
    parse_s_per_byte: float
    parse_s: float

    @classmethod
    def of(cls, network: Network) -> ServerCosts:
        """Those of ``network``."""
        return cls(network.num_servers, float(network.parse_s_per_byte), float(network.parse_s))


@kernel
def transfer_edges(layout, plan, pulls, pushes, parses):
    """Edges of a plan's parts; pulls, pushes: as ``cut_batches`` returns them.

    parses: whether each part is parsed by a node of its own.
    """
    arrived, updated, pulled = layout.arrived, layout.updated, layout.pulled
    gradient, free, first_pull, overlapping = layout.gradient, layout.free, layout.parts, layout.overlapping
    push_order, push_first, listed = plan.push_order, plan.push_first, plan.listed
    pull_of, pull_server, _, _, _ = pulls
    push_of, push_server, _, _, first_part = pushes
    first_push = first_pull + len(pull_server)
    num_parts = len(pull_server) + len(push_server)
    received = num_parts if parses else 0  # from a part to what others wait for
    p = len(pull_of)
    capacity = 4 * p + len(push_server) + received
    for b in range(len(push_first) - 1):
        capacity += (push_first[b + 1] - push_first[b]) * (first_part[b + 1] - first_part[b])
    sources, targets = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    count = 0
    for i in range(p):
        sources[count], targets[count] = first_pull + pull_of[i] + received, pulled + i
        count += 1
        if overlapping:
            sources[count], targets[count] = free + i, first_pull + pull_of[i] + NEXT_STEP
            sources[count + 1], targets[count + 1] = updated + i, first_pull + pull_of[i] + NEXT_STEP
            count += 2
        if push_of[i] >= 0:
            sources[count], targets[count] = first_push + push_of[i] + received, arrived + i
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
    for part in range(received):
        sources[count], targets[count] = first_pull + part, first_pull + part + num_parts
        count += 1
    return sources[:count], targets[:count]


@kernel
def rank_parsing(sources, targets, pulled, first_op, rank, pull_of, num_pulls):
    """Ranks on a worker's processor where it also parses pulls: of operations (n,), and of pulls.

    A pull comes directly before the first operation that reads any of it, in the order of ``rank`` (n,), or
    after them all; before one operation, pulls come in the order of the plan. sources, targets: edges, among
    them those from each parameter's ``pulled`` node to its readers; pull_of (p,): the part of each parameter.
    """
    n, p = len(rank), len(pull_of)
    last = rank.max() + 1 if n else 0  # ranks may leave gaps
    reader = np.full(num_pulls, last)
    for e in range(len(sources)):
        i, op = sources[e] - pulled, targets[e] - first_op
        if 0 <= i < p and 0 <= op < n:
            reader[pull_of[i]] = min(reader[pull_of[i]], rank[op])
    place = np.zeros(last + 2, np.int64)  # how many pulls have readers before each rank
    for part in range(num_pulls):
        place[reader[part] + 1] += 1
    for k in range(last + 1):
        place[k + 1] += place[k]
    of_ops = rank + place[rank + 1]
    of_pulls = np.empty(num_pulls, np.int64)
    for part in range(num_pulls):
        of_pulls[part] = reader[part] + place[reader[part]]
        place[reader[part]] += 1
    return of_ops, of_pulls


@kernel
def assemble_server(layout, plan, costs, num_workers):
    """The program of a plan, each local node's preference (L,), and the parts of pulls and pushes."""
    arrived, updated, pulled, first_part = layout.arrived, layout.updated, layout.pulled, layout.parts
    sources, targets, home, bits = layout.sources, layout.targets, layout.home, layout.bits
    rank, sequence = plan.rank, plan.sequence
    num_servers, parse_s_per_byte, parse_s = costs.num_servers, costs.parse_s_per_byte, costs.parse_s
    pulls = cut_batches(plan.pull_order, plan.pull_first, home, bits, num_servers)
    pushes = cut_batches(plan.push_order, plan.push_first, home, bits, num_servers)
    parses = parse_s_per_byte > 0.0 or parse_s > 0.0
    more_sources, more_targets = transfer_edges(layout, plan, pulls, pushes, parses)
    first_op, n, u = pulled - len(rank), len(rank), updated + len(home)
    num_pulls, num_pushes = len(pulls[1]), len(pushes[1])
    middle, end = first_part + num_pulls, first_part + num_pulls + num_pushes
    num_nodes = end + (num_pulls + num_pushes if parses else 0)
    next_ptr, next_idx = rows_of(
        np.concatenate((sources, more_sources, first_op + sequence[:-1])),
        np.concatenate((targets, more_targets, first_op + sequence[1:])),
        num_nodes,
    )
    lane, lane_step = np.full(num_nodes, NO_LANE), np.zeros(num_nodes, np.int64)
    preference, work = np.zeros(num_nodes, np.int64), np.zeros(num_nodes)
    lane[:arrived] = num_workers + layout.server_of_op
    lane[u : u + n], lane_step[u : u + n], preference[u : u + n] = 0, 1, rank
    first_receiver = num_workers + num_servers
    num_receivers = num_workers * num_servers if parses else 0
    first_channel = first_receiver + num_receivers
    lane[first_part:middle] = first_channel + pulls[1]
    lane[middle:end] = first_channel + num_workers * num_servers + pushes[1]
    lane_step[first_part:end] = num_servers
    work[first_part:middle], work[middle:end] = pulls[3], pushes[3]
    preference[first_part:middle], preference[middle:end] = np.arange(num_pulls), np.arange(num_pushes)
    if parses:
        of_pulls, of_pushes = slice(end, end + num_pulls), slice(end + num_pulls, num_nodes)
        lane[of_pulls], lane_step[of_pulls] = 0, 1
        lane[of_pushes], lane_step[of_pushes] = first_receiver + pushes[1], num_servers
        work[end:] = parse_s + parse_s_per_byte / 8.0 * work[first_part:end]
        preference[u : u + n], preference[of_pulls] = rank_parsing(
            sources, targets, pulled, first_op, rank, pulls[0], num_pulls
        )
        preference[of_pushes] = np.arange(num_pushes)
    program = StepProgram(
        u, num_servers, num_receivers, num_servers, next_ptr, next_idx, lane, lane_step, work
    )
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
    pulled, pushed = flat.pulls, flat.gradients
    program, preference, pulls, pushes = assemble_server(
        step.layout,
        ServerPlan(pulled.order, pulled.first, pushed.order, pushed.first, flat.listed, rank, sequence),
        ServerCosts.of(network),
        num_workers,
    )
    shared_s, own_s = zip(_occupied_s(step, pulls), _occupied_s(step, pushes), strict=True)
    ways_s = [max(way) for way in zip(shared_s, own_s, strict=True)]
    occupied_s = apart_s = max(ways_s)
    if not step.overlapping and _in_turn(graph):
        occupied_s = sum(ways_s)
        # The worker that has all its pulls first pushes beside others' pulls; one way's rest is then its own.
        apart_s = max(sum(own_s), shared_s[0] + own_s[1], own_s[0] + shared_s[1])
    parsed_s = float(_parse_s(step, pushes).max())
    return Lowered(
        graph=graph,
        network=network,
        program=program,
        preference=preference,
        durations_s=np.ascontiguousarray(graph.durations_s[step.worker_ops].T),
        global_durations_s=np.ascontiguousarray(graph.durations_s[step.server_ops].T),
        communication_s=max(ways_s) if step.overlapping else sum(ways_s),
        occupied_s=max(occupied_s, parsed_s),
        occupied_apart_s=max(apart_s, parsed_s),
        parse_s=float(_parse_s(step, pulls).sum()),
        done_node=step.done if step.overlapping else -1,
        drawn_places=step.parts - program.num_globals + np.arange(len(pulls[1])),
        drawn_group=pulls[2],
        timeline_nodes=_timeline_nodes(step, plan, pulls, pushes),
    )


def _occupied_s(step: ServerStep, parts: tuple[Indices, ...]) -> tuple[float, float]:
    """For how long transfers in one direction occupy what all workers share, and what is a worker's own.

    That is a server's interface, which carries every worker's bytes; and a worker's interface, or one of its
    channels, which alone are also occupied by startups.
    """
    network = step.network
    _, server, _, bits, _ = parts
    moving_s = np.bincount(server, weights=bits, minlength=network.num_servers) / network.bandwidth_bps
    channels_s = np.bincount(server, minlength=network.num_servers) * network.startup_s + moving_s
    return float(network.num_workers * moving_s.max()), float(max(moving_s.sum(), channels_s.max()))


def _parse_s(step: ServerStep, parts: tuple[Indices, ...]) -> Floats:
    """For how long one worker's messages in one direction are parsed, by their server, (M,)."""
    network = step.network
    _, server, _, bits, _ = parts
    seconds = network.parse_s + network.parse_s_per_byte / 8.0 * bits
    return np.bincount(server, weights=seconds, minlength=network.num_servers).astype(np.float64)


def _in_turn(graph: StepGraph) -> bool:
    """True if every gradient needs every parameter, so that pushes only start when all pulls are over."""
    needs = dependencies(graph)
    num_needed = np.bitwise_count(needs.needs).sum(axis=1, dtype=np.int64)[needs.class_of]
    return bool((num_needed[graph.produces.lengths() > 0] == graph.num_parameters).all())


def _timeline_nodes(
    step: ServerStep, plan: Plan, pulls: tuple[Indices, ...], pushes: tuple[Indices, ...]
) -> tuple[TimelineNode, ...]:
    graph = step.graph
    first_op = step.pulled - len(step.worker_ops)
    shown = [
        TimelineNode(first_op + k, graph.operation_names[op], PHASE_NAMES[graph.phases[op]], "compute")
        for k, op in enumerate(step.worker_ops.tolist())
    ]
    network = step.network
    pulled, pushed = ([batch_name(it.parameters) for it in batches] for batches in (plan.pulls, plan.pushes))
    kinds: list[tuple[Kind, str, tuple[Indices, ...], list[str]]] = [
        ("pull", "pull", pulls, pulled),
        ("push", "push", pushes, pushed),
    ]
    if network.parse_s_per_byte or network.parse_s:
        kinds += [("parse", "compute", pulls, pulled), ("parse", "parse at server", pushes, pushed)]
    first = step.parts
    for kind, lane, parts, names in kinds:
        for part in np.argsort(parts[1], kind="stable").tolist():
            of_one = lane == "compute" or network.num_servers == 1
            shown_lane = lane if of_one else f"{lane}, server {parts[1][part]}"
            shown.append(TimelineNode(first + part, names[parts[2][part]], kind, shown_lane))
        first += len(parts[1])
    for k in np.argsort(step.server_of_op, kind="stable").tolist():
        op = step.server_ops[k]
        shown.append(TimelineNode(k, graph.operation_names[op], "update", f"server {step.server_of_op[k]}"))
    return tuple(shown)
