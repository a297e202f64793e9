"""What no order of transfers and no order of operations can beat.

Every resource is a machine that works through its items one after the other; an item has a head (it cannot
start before), its work, and a tail (what must follow it). For any set of items on one machine, the earliest
head, all their work and the shortest tail add up to a lower bound of the step (Carlier 1982). With the
heads and tails of longest paths this contains the busiest resource and the critical path.

Heads of operations also count the pulls they need, and there lies the one assumption: interfaces are shared
equally, so that no worker is served before the others. While one worker's channel is in its startup the
others move faster, so with a startup the head gives back what they could have gained.

Batching only delays what could have travelled alone, so parameters are bounded one by one, whatever the
plan's batches; of startups only as many are counted as the plan makes, at least one on every path. Without
a startup the bound is therefore the same for all plans of a step on a network.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hocket.graph.csr import Indices
from hocket.graph.dependencies import dependencies
from hocket.kernel import kernel
from hocket.sim.lower import Lowered, unbatched

Floats = npt.NDArray[np.float64]


def one_machine(head: Floats, work: Floats, tail: Floats) -> float:
    """A lower bound for items (k,) on one machine: sets of latest heads, and sets of longest tails."""
    if not len(work):
        return 0.0
    best = 0.0
    for key in (head, tail):
        order = np.argsort(-key, kind="stable")
        sums = np.cumsum(work[order])
        others = np.minimum.accumulate((tail if key is head else head)[order])
        best = max(best, float((key[order] + sums + others).max()))
    return best


def bounds(lowered: Lowered, durations_s: Floats, server_durations_s: Floats) -> tuple[float, Floats]:
    """Lower bounds of a step in seconds: what all workers share, and each measured step on one worker.

    durations_s: (samples, n) of worker operations; server_durations_s: (u,). A step in which workers repeat
    the measured steps k1, k2, ... takes at least the maximum of the first and of the second at k1, k2, ...
    """
    alone = unbatched(lowered)
    # What each item costs its channel beyond the startup of the first.
    startup_s = lowered.network.startup_s if alone is lowered else 0.0
    order, loads = _item_order(alone), _pull_loads(alone, startup_s)
    shared = _shared_bound(alone, *_paths(alone, order, loads, durations_s.min(axis=0), server_durations_s))
    each = [
        _worker_bound(alone, startup_s, *_paths(alone, order, loads, row, server_durations_s))
        for row in durations_s
    ]
    return max(shared, *lowered.ways_s()), np.array(each)


def _item_order(lowered: Lowered) -> Indices:
    """Local items and then server operations (numbered from L on), each after what it waits for."""
    graph, program = lowered.graph, lowered.program
    n, num_local = program.num_ops, len(program.waits)
    item = np.empty(graph.num_operations, dtype=np.int64)
    item[lowered.worker_ops] = np.arange(n)
    item[lowered.server_ops] = num_local + np.arange(len(lowered.server_ops))
    operations = item[graph.order]
    first_push = n + lowered.pulls.num_parts
    return np.concatenate(
        [
            np.arange(n, first_push),
            operations[operations < n],
            np.arange(first_push, num_local),
            operations[operations >= num_local],
        ]
    )


def _pull_loads(lowered: Lowered, startup_s: float) -> Floats:
    """For each worker operation the earliest time at which all pulls it needs can have come, (n,)."""
    network, pulls = lowered.network, lowered.pulls
    needs = dependencies(lowered.graph)
    bits, parts = _needed(
        needs.needs, pulls.part_of, pulls.server, pulls.bits, network.num_servers, np.zeros(pulls.num_parts)
    )
    workers = network.num_workers
    alone = bits / network.bandwidth_bps
    gained = (workers - 1) * pulls.of_server.lengths() * network.startup_s
    first = np.minimum(parts, 1) * network.startup_s
    per_server = np.maximum(first + np.maximum(parts - 1, 0) * startup_s + alone, workers * alone - gained)
    loads = np.maximum(per_server.max(axis=1), alone.sum(axis=1))
    per_operation: Floats = loads[needs.class_of[lowered.worker_ops]]
    return per_operation


@kernel
def _needed(needs, part_of, server, part_bits, num_servers, seen):
    """Bits and parts that each class of operations needs from each server, shape (classes, servers) each.

    seen (parts,): scratch, all zero.
    """
    bits = np.zeros((len(needs), num_servers))
    parts = np.zeros((len(needs), num_servers))
    for c in range(len(needs)):
        for parameter in range(len(part_of)):
            if needs[c, parameter // 64] >> np.uint64(parameter % 64) & np.uint64(1):
                part = part_of[parameter]
                if seen[part] != c + 1:
                    seen[part] = c + 1
                    bits[c, server[part]] += part_bits[part]
                    parts[c, server[part]] += 1
    return bits, parts


def _paths(
    lowered: Lowered, order: Indices, loads: Floats, durations_s: Floats, server_durations_s: Floats
) -> tuple[Floats, Floats, Floats]:
    """Head, work and tail of every local item and server operation, shape (L + u,) each."""
    program, network = lowered.program, lowered.network
    n = program.num_ops
    transfers = network.startup_s + program.bits[n:] / network.bandwidth_bps
    work = np.concatenate([durations_s, transfers, server_durations_s])
    head, tail = np.zeros(len(work)), np.zeros(len(work))
    head[:n] = loads
    _longest_paths(
        order, program.next_ptr, program.next_idx, program.server_ptr, program.server_idx, work, head, tail
    )
    return head, work, tail


@kernel
def _longest_paths(order, next_ptr, next_idx, server_ptr, server_idx, work, head, tail):
    """Raise ``head`` and ``tail`` (L + u,) in place to the longest paths before and after an item."""
    num_local = len(next_ptr) - 1
    for i in order:
        done = head[i] + work[i]
        if i < num_local:
            for e in range(next_ptr[i], next_ptr[i + 1]):
                head[next_idx[e]] = max(head[next_idx[e]], done)
        for e in range(server_ptr[i], server_ptr[i + 1]):
            head[num_local + server_idx[e]] = max(head[num_local + server_idx[e]], done)
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        if i < num_local:
            for e in range(next_ptr[i], next_ptr[i + 1]):
                tail[i] = max(tail[i], work[next_idx[e]] + tail[next_idx[e]])
        for e in range(server_ptr[i], server_ptr[i + 1]):
            j = num_local + server_idx[e]
            tail[i] = max(tail[i], work[j] + tail[j])


def _shared_bound(lowered: Lowered, head: Floats, work: Floats, tail: Floats) -> float:
    """Server interfaces carry every worker's transfers; server processors their operations."""
    network, program = lowered.network, lowered.program
    best = 0.0
    first = program.num_ops
    for way in (lowered.pulls, lowered.pushes):
        for s in range(network.num_servers):
            items = first + way.of_server.row(s)
            # The startups do not occupy the interface; the last item's is in its head and tail already.
            moving = network.num_workers * program.bits[items] / network.bandwidth_bps
            best = max(best, one_machine(head[items] + network.startup_s, moving, tail[items]))
        first += way.num_parts
    for s in range(network.num_servers):
        items = len(program.waits) + np.flatnonzero(program.server_lane == network.num_workers + s)
        best = max(best, one_machine(head[items], work[items], tail[items]))
    return best


def _worker_bound(lowered: Lowered, startup_s: float, head: Floats, work: Floats, tail: Floats) -> float:
    """A worker's processor, its channels, its interface in each direction, and the longest path."""
    network, program = lowered.network, lowered.program
    processor = slice(0, program.num_ops)
    best = float((head + work + tail).max())
    best = max(best, one_machine(head[processor], work[processor], tail[processor]))
    first = program.num_ops
    for way in (lowered.pulls, lowered.pushes):
        for s in range(network.num_servers):
            channel = first + way.of_server.row(s)
            busy = program.bits[channel] / network.bandwidth_bps + startup_s
            # One startup is in the head, where the channel's first item has it.
            best = max(best, one_machine(head[channel] + network.startup_s - startup_s, busy, tail[channel]))
        items = slice(first, first + way.num_parts)
        moving = program.bits[items] / network.bandwidth_bps
        best = max(best, one_machine(head[items] + network.startup_s, moving, tail[items]))
        first += way.num_parts
    return best
