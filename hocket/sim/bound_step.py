"""What no order, batching or compute order beats: a parameter-server step with a barrier at its end.

Every resource is a machine that works through its items one after the other; an item has a head (it cannot
start before), its work, and a tail (what must follow it); :func:`hocket.sim.reach.one_machine` is what no
order of them can beat. Heads and tails are longest paths, so that this contains the busiest resource and the
critical path; what must run before an operation on its own worker also adds up, since a worker has one
processor.

Heads of operations also count the pulls they need, and there lies the one assumption: interfaces are shared
equally, so that no worker is served before the others. While one worker's channel is in its startup the
others move faster, so with a startup the head gives back what they could have gained; nothing, where all
workers are in lockstep.

Batching only delays what could have travelled alone, so parameters are bounded one by one, and every path
counts one startup for each direction, whatever a plan makes of it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hocket.graph import Csr, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.dependencies import dependencies
from hocket.network import Network
from hocket.sim.lowered import rows_of
from hocket.sim.parameter_server import ServerStep, server_step
from hocket.sim.reach import LARGEST, longest_paths, one_machine, reach

Floats = npt.NDArray[np.float64]


def step_bounds(graph: StepGraph, network: Network, *, lockstep: bool) -> tuple[float, Floats]:
    """Lower bounds of a step in seconds: what all workers share, and each measured step on one worker.

    A step in which workers repeat the measured steps k1, k2, ... takes at least the maximum of the first and
    of the second at k1, k2, ...
    """
    step = server_step(graph, network, overlapping=False)
    loads = _pull_loads(graph, network, step.home, lockstep)[step.worker_ops]
    before, after = _processor_work(graph, step)
    durations_s = graph.durations_s[step.worker_ops]
    server_s = graph.durations_s[step.server_ops].min(axis=1)
    # On the processor, what comes before an operation adds up from the first moment that anything can run.
    heads = np.maximum(loads, before + loads.min(initial=np.inf)) if len(loads) else loads
    shared = _shared_bound(step, *_paths(step, heads, after, durations_s.min(axis=1), server_s))
    each = [
        _worker_bound(step, *_paths(step, heads, after, row, server_s))
        for row in np.ascontiguousarray(durations_s.T)
    ]
    return shared, np.array(each)


def _pull_loads(graph: StepGraph, network: Network, home: Indices, lockstep: bool) -> Floats:
    """For each operation the earliest time at which all pulls it needs can have come, (n,)."""
    needs = dependencies(graph)
    rows = needs.rows()
    alone = np.zeros((rows.num_rows, network.num_servers))
    any_part = np.zeros((rows.num_rows, network.num_servers), bool)
    where = (rows.row_of_entry(), home[rows.indices])
    np.add.at(alone, where, 8.0 * graph.parameter_bytes[rows.indices] / network.bandwidth_bps)
    any_part[where] = True
    workers = network.num_workers
    gained = (workers - 1) * np.bincount(home, minlength=network.num_servers) * network.startup_s
    if lockstep:
        gained = -network.startup_s * any_part
    per_server = np.maximum(any_part * network.startup_s + alone, workers * alone - gained)
    loads: Floats = np.maximum(per_server.max(axis=1, initial=0.0), alone.sum(axis=1))
    return loads[needs.class_of]


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
    """Head, work and tail of every node; a push is its parameter's ``arrived``, a pull its ``pulled``."""
    first_op, n = step.pulled - len(heads), len(heads)
    moving_s = step.bits / step.network.bandwidth_bps
    work, head, tail = np.zeros(step.done), np.zeros(step.done), np.zeros(step.done)
    work[: step.arrived] = server_s
    trained = step.graph.produced
    work[step.arrived : step.updated][trained] = (step.network.startup_s + moving_s)[trained]
    work[first_op : step.pulled] = durations_s
    work[step.pulled : step.gradient] = step.network.startup_s + moving_s
    head[first_op : step.pulled] = heads
    pushes = np.flatnonzero(trained)
    sources = np.concatenate([step.sources, step.gradient + pushes])
    targets = np.concatenate([step.targets, step.arrived + pushes])
    next_ptr, next_idx = rows_of(sources, targets, step.done)
    order = _node_order(step)
    longest_paths(order, next_ptr, next_idx, work, head, tail)
    # What must follow on the processor adds up too, and something may have to follow all of it.
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
    return np.concatenate(
        [
            np.arange(step.pulled, step.gradient),
            operations[~on_server],
            np.arange(step.gradient, step.free),
            np.arange(step.arrived, step.updated),
            operations[on_server],
        ]
    )


def _ways(step: ServerStep) -> tuple[tuple[int, Indices], tuple[int, Indices]]:
    """For pulls, and for pushes, the node of parameter 0 and the parameters that travel."""
    every = np.arange(step.graph.num_parameters)
    return (step.pulled, every), (step.arrived, every[step.graph.produced])


def _shared_bound(step: ServerStep, head: Floats, work: Floats, tail: Floats) -> float:
    """Server interfaces carry every worker's transfers; server processors their operations."""
    startup_s, workers = step.network.startup_s, step.network.num_workers
    best = 0.0
    for s in range(step.network.num_servers):
        for first, parameters in _ways(step):
            here = first + parameters[step.home[parameters] == s]
            # The startups do not occupy the interface.
            moving = workers * (work[here] - startup_s)
            best = max(best, one_machine(head[here] + startup_s, moving, tail[here]))
        here = np.flatnonzero(step.server_of_op == s)
        best = max(best, one_machine(head[here], work[here], tail[here]))
    return best


def _worker_bound(step: ServerStep, head: Floats, work: Floats, tail: Floats) -> float:
    """A worker's processor, its interface in each direction, and the longest path."""
    startup_s = step.network.startup_s
    processor = slice(step.pulled - len(step.worker_ops), step.pulled)
    best = float((head + work + tail).max(initial=0.0))
    best = max(best, float(one_machine(head[processor], work[processor], tail[processor])))
    for first, parameters in _ways(step):
        here = first + parameters
        best = max(best, float(one_machine(head[here] + startup_s, work[here] - startup_s, tail[here])))
    return best
