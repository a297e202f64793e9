"""The bound of a parameter-server step with a barrier at its end, over all orders and batches.

Every resource is a machine that works through its items one after the other; an item has a head (it cannot
start before), its work, and a tail (what must follow it); no order of them can beat
:func:`hocket.sim.bounds.reach.preemptive_bound`. Heads and tails are longest paths, so that this contains the
busiest resource and the critical path; what must run before an operation on its own worker also adds up,
since a worker has one processor.

Heads of operations also count the pulls they need, and there lies the one assumption: no worker is served
before the others, so that a server has sent all of them what one has. Where all pull in one order this is
so: pulls wait for no operation, and what is alike gets alike shares. Where orders differ it is so until a
channel is in its startup, which is when others move faster: all channels of a server go on together, at the
same rate, and are through together. With startups, on one or two servers, channels of a server still go at
one rate whenever they go (of two, a worker's own interface is never full before the servers' are, or as
soon), so the head gives back what the others can have gained during a worker's startups. Max-min sharing of
three servers or more lets a worker gain also while another is held back elsewhere, for as long as
that lasts; there the head counts no more than one worker's bytes.

Batching only delays what could have travelled alone, so parameters are bounded one by one, and every path
counts one startup for each direction and one parse cost of each message, whatever a plan makes of it. On a
processor that parses, bytes add up; messages may be few, so what each costs beside its bytes counts once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hocket.graph import Csr, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.dependencies import dependencies
from hocket.network import Network
from hocket.sim.bounds.reach import LARGEST, longest_paths, preemptive_bound, reach
from hocket.sim.lowering.lowered import rows_of
from hocket.sim.lowering.parameter_server import ServerStep, server_step

Floats = npt.NDArray[np.float64]


def step_bounds(graph: StepGraph, network: Network, *, lockstep: bool) -> tuple[float, Floats]:
    """Lower bounds of a step in seconds: what all workers share, and each measured step on one worker.

    A step in which workers repeat the measured steps k1, k2, ... takes at least the maximum of the first and
    of the second at k1, k2, ... ``lockstep``: all workers pull in one order.
    """
    step = server_step(graph, network, overlapping=False)
    loads, parsed_s = (per_op[step.worker_ops] for per_op in _pull_loads(graph, network, step.home, lockstep))
    before, after = _processor_work(graph, step)
    durations_s = graph.durations_s[step.worker_ops]
    server_s = graph.durations_s[step.server_ops].min(axis=1)
    # On the processor, what comes before an operation adds up from the first moment that anything can run.
    heads = loads
    if len(loads):
        first = loads.min()
        heads = np.maximum(loads, before + first)
        if parsed_s.any():
            first = min(first, network.startup_s + float(step.bits.min()) / network.bandwidth_bps)
            heads = np.maximum(heads, before + parsed_s + first)
    shared = _shared_bound(step, *_paths(step, heads, after, durations_s.min(axis=1), server_s))
    each = [
        _worker_bound(step, *_paths(step, heads, after, row, server_s))
        for row in np.ascontiguousarray(durations_s.T)
    ]
    return shared, np.array(each)


def _pull_loads(graph: StepGraph, network: Network, home: Indices, lockstep: bool) -> tuple[Floats, Floats]:
    """For each operation the earliest time at which all pulls it needs can be there, (n,).

    And for how long its processor parses them, (n,).
    """
    needs = dependencies(graph)
    rows = needs.rows()
    alone = np.zeros((rows.num_rows, network.num_servers))
    any_part = np.zeros((rows.num_rows, network.num_servers), bool)
    where = (rows.row_of_entry(), home[rows.indices])
    np.add.at(alone, where, 8.0 * graph.parameter_bytes[rows.indices] / network.bandwidth_bps)
    any_part[where] = True
    workers = network.num_workers
    per_server = any_part * network.startup_s + alone
    if lockstep:
        per_server = any_part * network.startup_s + workers * alone
    elif network.startup_s == 0 or network.num_servers <= 2:
        gained = (workers - 1) * np.bincount(home, minlength=network.num_servers) * network.startup_s
        per_server = np.maximum(per_server, workers * alone - gained)
    loads: Floats = np.maximum(per_server.max(axis=1, initial=0.0), alone.sum(axis=1))
    # Whichever comes last, its message has yet to be parsed.
    each_s = network.parse_s_per_byte * graph.parameter_bytes[rows.indices]
    last_s, parsed_s = np.full(rows.num_rows, np.inf), np.zeros(rows.num_rows)
    np.minimum.at(last_s, where[0], each_s)
    np.add.at(parsed_s, where[0], each_s)
    message_s = any_part.any(axis=1) * network.parse_s
    loads += message_s + np.where(np.isfinite(last_s), last_s, 0.0)
    return loads[needs.class_of], (message_s + parsed_s)[needs.class_of]


def _processor_work(graph: StepGraph, step: ServerStep) -> tuple[Floats, Floats]:
    """For each worker operation the least work of its processor before it, and after it, (n,) each."""
    n = len(step.worker_ops)
    if n > LARGEST:
        return np.zeros(n), np.zeros(n)
    place = np.full(graph.num_operations, -1)
    place[step.worker_ops] = np.arange(n)
    rows = [place[graph.inputs.row(i)].tolist() for i in step.worker_ops]
    inputs = Csr.from_rows(rows)
    order = place[graph.order]
    order = order[order >= 0]
    work = graph.oracle_s[step.worker_ops]
    alone, everything = Csr.from_rows([[i] for i in range(n)]), np.ones(n, bool)
    before = reach(inputs, order).work_before(alone, work, everything) - work
    after = reach(inputs.transpose(n), order[::-1].copy()).work_before(alone, work, everything) - work
    return np.maximum(before, 0.0), np.maximum(after, 0.0)


def _paths(
    step: ServerStep, heads: Floats, after: Floats, durations_s: Floats, server_s: Floats
) -> tuple[Floats, Floats, Floats]:
    """Head, work and tail of every node: those of ``step``, then each parameter's pull and each one's push.

    The work of ``pulled`` and ``arrived`` is parsing.
    """
    first_op, n, p = step.pulled - len(heads), len(heads), len(step.home)
    pull, push, num_nodes = step.done, step.done + p, step.done + 2 * p
    work, head, tail = np.zeros(num_nodes), np.zeros(num_nodes), np.zeros(num_nodes)
    work[: step.arrived] = server_s
    trained = np.flatnonzero(step.graph.produced)
    every = np.arange(p)
    transfer_s = step.network.startup_s + step.bits / step.network.bandwidth_bps
    work[pull:push], work[push + trained] = transfer_s, transfer_s[trained]
    parse_s = step.network.parse_s + _bytes_s(step)
    work[step.pulled : step.gradient], work[step.arrived + trained] = parse_s, parse_s[trained]
    work[first_op : step.pulled] = durations_s
    head[first_op : step.pulled] = heads
    sources = np.concatenate([step.sources, pull + every, step.gradient + trained, push + trained])
    targets = np.concatenate([step.targets, step.pulled + every, push + trained, step.arrived + trained])
    next_ptr, next_idx = rows_of(sources, targets, num_nodes)
    order = _node_order(step)
    longest_paths(order, next_ptr, next_idx, work, head, tail)
    # Operations that must follow on the processor add up too, and one may have to follow all of them.
    of_ops = slice(first_op, first_op + n)
    if n:
        tail[of_ops] = np.maximum(tail[of_ops], after + tail[of_ops].min())
        longest_paths(order, next_ptr, next_idx, work, head, tail)
    return head, work, tail


def _node_order(step: ServerStep) -> Indices:
    """Nodes in an order in which each follows what it waits for."""
    graph = step.graph
    place = np.empty(graph.num_operations, np.int64)
    place[step.worker_ops] = step.pulled - len(step.worker_ops) + np.arange(len(step.worker_ops))
    place[step.server_ops] = np.arange(len(step.server_ops))
    operations = place[graph.order]
    on_server = operations < len(step.server_ops)
    p = len(step.home)
    return np.concatenate(
        [
            np.arange(step.done, step.done + p),
            np.arange(step.pulled, step.gradient),
            operations[~on_server],
            np.arange(step.gradient, step.free),
            np.arange(step.done + p, step.done + 2 * p),
            np.arange(step.arrived, step.updated),
            operations[on_server],
        ]
    )


def _ways(step: ServerStep) -> tuple[tuple[int, Indices], tuple[int, Indices]]:
    """For pulls, and for pushes, the node of parameter 0 and the parameters that travel."""
    every = np.arange(step.graph.num_parameters)
    return (step.done, every), (step.done + len(every), every[step.graph.produced])


def _bytes_s(step: ServerStep) -> Floats:
    """Seconds that parsing takes for each parameter's bytes, (p,)."""
    seconds: Floats = step.network.parse_s_per_byte / 8.0 * step.bits
    return seconds


def _shared_bound(step: ServerStep, head: Floats, work: Floats, tail: Floats) -> float:
    """Server interfaces carry every worker's transfers; server processors their operations."""
    startup_s, workers = step.network.startup_s, step.network.num_workers
    best = 0.0
    for s in range(step.network.num_servers):
        for first, parameters in _ways(step):
            here = first + parameters[step.home[parameters] == s]
            # The startups do not occupy the interface.
            moving = workers * (work[here] - startup_s)
            best = max(best, preemptive_bound(head[here] + startup_s, moving, tail[here]))
        here = np.flatnonzero(step.server_of_op == s)
        best = max(best, preemptive_bound(head[here], work[here], tail[here]))
    return best


def _worker_bound(step: ServerStep, head: Floats, work: Floats, tail: Floats) -> float:
    """A worker's processor, its interface in each direction, its receivers, and the longest path."""
    startup_s = step.network.startup_s
    best = float((head + work + tail).max(initial=0.0))
    best = max(best, _processor_bound(step, head, work, tail))
    _, (_, pushed) = _ways(step)
    for s in range(step.network.num_servers if step.network.parse_s_per_byte else 0):
        on_server = pushed[step.home[pushed] == s]
        here = step.arrived + on_server
        best = max(best, float(preemptive_bound(head[here], _bytes_s(step)[on_server], tail[here])))
    for first, parameters in _ways(step):
        here = first + parameters
        best = max(best, float(preemptive_bound(head[here] + startup_s, work[here] - startup_s, tail[here])))
    return best


def _processor_bound(step: ServerStep, head: Floats, work: Floats, tail: Floats) -> float:
    """A worker's processor: its operations, what it parses byte by byte, and a message from each server."""
    ops = np.arange(step.pulled - len(step.worker_ops), step.pulled)
    if not (step.network.parse_s_per_byte or step.network.parse_s) or not len(step.home):
        return float(preemptive_bound(head[ops], work[ops], tail[ops]))
    messages = np.arange(step.pulled, step.gradient)
    heads = np.concatenate([head[ops], head[messages], head[messages].min(keepdims=True)])
    tails = np.concatenate([tail[ops], tail[messages], tail[messages].min(keepdims=True)])
    least_s = [len(np.unique(step.home)) * step.network.parse_s]
    return float(preemptive_bound(heads, np.concatenate([work[ops], _bytes_s(step), least_s]), tails))
