"""The event loop of one synchronous parameter-server step, on flat arrays.

*Lanes* are the resources that do one thing at a time: a processor for each worker and server, and for each
worker-server pair a channel down (pulls) and a channel up (pushes). *Items* are what lanes do: operations
and transfers. An item that waits for nothing any more joins its lane's heap; each lane has at most one
pending event, and a tournament tree over the lanes finds the next. A channel past its startup shares the
interfaces at both of its ends equally with the other channels that are.

Lane numbers: worker w's processor is w, server s's W + s, the channel of pair (w, s) W + M + w * M + s
downwards, and W * M further on upwards. Item numbers: worker w's are w * L + i for local i in [0, L)
(operations, then pull parts, then push parts), server operations follow from W * L on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hocket.kernel import kernel

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_IDLE, _STARTING, _MOVING = 0, 1, 2
# Events this close (relative to the time) are one instant: sums of the same times in another order must not
# decide which operation an idle processor takes.
_INSTANT = 1.0 + 1e-12


class Program(NamedTuple):
    """One worker's items (L of them, n operations first) and the servers' (u)."""

    num_ops: int
    next_ptr: Ints  # (L + 1,) cuts next_idx: local items that wait for each local item
    next_idx: Ints
    server_ptr: Ints  # (L + u + 1,) cuts server_idx: server operations that wait for each item
    server_idx: Ints
    waits: Ints  # (L,) how many items each local item waits for
    server_waits: Ints  # (u,) likewise, each worker's counted
    lane: Ints  # (L,) the lane of worker 0's item; worker w's is lane + w * lane_step
    lane_step: Ints  # (L,)
    server_lane: Ints  # (u,)
    key: Ints  # (L,) which ready item a lane takes first; pulls have theirs in run's pull_keys
    strict: bool  # processors take keys 0, 1, 2, ... and wait for the next one
    bits: Floats  # (L,) size of a transfer, 0 for operations


@kernel
def _set_time(tree, lane, time):
    i = len(tree) // 2 + lane
    tree[i] = time
    i //= 2
    while i >= 1:
        least = min(tree[2 * i], tree[2 * i + 1])
        if tree[i] == least:
            break
        tree[i] = least
        i //= 2


@kernel
def _first_lane(tree):
    leaves = len(tree) // 2
    i = 1
    while i < leaves:
        i = 2 * i if tree[2 * i] <= tree[2 * i + 1] else 2 * i + 1
    return i - leaves


@kernel
def _push(heap, size, entry):
    i = size
    while i > 0 and heap[(i - 1) // 2] > entry:
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = entry


@kernel
def _drop_first(heap, size):
    last = heap[size - 1]
    i = 0
    while 2 * i + 1 < size - 1:
        child = 2 * i + 1
        if child + 1 < size - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = last


@kernel
def _join(change, channel, at_server, at_worker, server_changed, worker_changed, way_changed):
    """Count a channel in (+1) or out (-1) at both of its ends, and note that shares there have changed."""
    num_servers, num_workers = at_server.shape[1], at_worker.shape[1]
    up, pair = channel // (num_workers * num_servers), channel % (num_workers * num_servers)
    w, s = pair // num_servers, pair % num_servers
    at_server[up, s] += change
    at_worker[up, w] += change
    way_changed[up] = server_changed[up, s] = worker_changed[up, w] = True


@kernel
def run(
    program,
    durations,
    samples,
    server_durations,
    pull_keys,
    num_servers,
    bandwidth_bps,
    startup_s,
    start,
    end,
):
    """Simulate one step in which all workers start together; return how many items were completed.

    durations (measured steps, n): seconds of the operations; samples (W,): the measured step that each worker
    repeats; server_durations (u,); pull_keys (1 or W, pulls): sending order, a row a worker; start, end
    (W * L + u,): seconds from the start of the step, modified in place.
    """
    num_workers, num_local, num_ops = len(samples), len(program.waits), program.num_ops
    first_server_item = num_workers * num_local
    first_channel = num_workers + num_servers
    num_pairs = num_workers * num_servers
    num_lanes = first_channel + 2 * num_pairs
    leaves = 1
    while leaves < num_lanes:
        leaves *= 2
    tree = np.full(2 * leaves, np.inf)  # tree[leaves + lane]: when the lane's item in hand goes on
    in_hand = np.full(num_lanes, -1, np.int64)
    taken = np.zeros(num_lanes, np.int64)

    waits = np.empty(first_server_item + len(program.server_waits), np.int64)
    lane_of = np.empty(len(waits), np.int64)
    for w in range(num_workers):
        waits[w * num_local : (w + 1) * num_local] = program.waits
        lane_of[w * num_local : (w + 1) * num_local] = program.lane + w * program.lane_step
    waits[first_server_item:] = program.server_waits
    lane_of[first_server_item:] = program.server_lane

    heap_first = np.zeros(num_lanes + 1, np.int64)
    for item in range(len(waits)):
        heap_first[lane_of[item] + 1] += 1
    for lane in range(num_lanes):
        heap_first[lane + 1] += heap_first[lane]
    heap = np.empty(len(waits), np.int64)  # entries: key * 2^32 + item
    heap_size = np.zeros(num_lanes, np.int64)

    stage = np.zeros(2 * num_pairs, np.int64)
    left_bits = np.zeros(2 * num_pairs)
    rate_bps = np.zeros(2 * num_pairs)
    since_s = np.zeros(2 * num_pairs)
    at_server = np.zeros((2, num_servers), np.int64)  # channels that move bytes, downwards and upwards
    at_worker = np.zeros((2, num_workers), np.int64)
    server_changed = np.zeros((2, num_servers), np.bool_)
    worker_changed = np.zeros((2, num_workers), np.bool_)
    way_changed = np.zeros(2, np.bool_)

    touched = np.empty(num_lanes, np.int64)  # lanes that may start something at this instant
    is_touched = np.zeros(num_lanes, np.bool_)
    num_touched = 0
    released = np.empty(len(waits), np.int64)
    num_released = 0
    for item in range(len(waits)):
        if waits[item] == 0:
            released[num_released] = item
            num_released += 1
    completed = 0
    now = 0.0

    while True:
        # 1. Released items join their lanes' heaps.
        for k in range(num_released):
            item = released[k]
            lane = lane_of[item]
            local = item % num_local
            if item >= first_server_item:
                key = item - first_server_item
            elif first_channel <= lane < first_channel + num_pairs:
                key = pull_keys[(item // num_local) % len(pull_keys), local - num_ops]
            else:
                key = program.key[local]
            _push(heap[heap_first[lane] :], heap_size[lane], key << 32 | item)
            heap_size[lane] += 1
            if not is_touched[lane]:
                is_touched[lane] = True
                touched[num_touched] = lane
                num_touched += 1
        num_released = 0

        # 2. Idle lanes start.
        for k in range(num_touched):
            lane = touched[k]
            is_touched[lane] = False
            if in_hand[lane] >= 0 or heap_size[lane] == 0:
                continue
            entry = heap[heap_first[lane]]
            if program.strict and lane < num_workers and entry >> 32 != taken[lane]:
                continue
            _drop_first(heap[heap_first[lane] :], heap_size[lane])
            heap_size[lane] -= 1
            taken[lane] += 1
            item = entry & 0xFFFFFFFF
            in_hand[lane] = item
            start[item] = now
            if lane < num_workers:
                _set_time(tree, lane, now + durations[samples[lane], item % num_local])
            elif lane < first_channel:
                _set_time(tree, lane, now + server_durations[item - first_server_item])
            else:
                channel = lane - first_channel
                left_bits[channel] = program.bits[item % num_local]
                if startup_s > 0.0:
                    stage[channel] = _STARTING
                    _set_time(tree, lane, now + startup_s)
                else:
                    stage[channel] = _MOVING
                    since_s[channel] = now
                    _join(+1, channel, at_server, at_worker, server_changed, worker_changed, way_changed)
        num_touched = 0

        # 3. Channels whose neighbours came or went get a new share.
        for up in range(2):
            if not way_changed[up]:
                continue
            for pair in range(num_pairs):
                channel, w, s = up * num_pairs + pair, pair // num_servers, pair % num_servers
                if stage[channel] == _MOVING and (server_changed[up, s] or worker_changed[up, w]):
                    share = bandwidth_bps / max(at_server[up, s], at_worker[up, w])
                    if share != rate_bps[channel]:
                        moved = rate_bps[channel] * (now - since_s[channel])
                        left_bits[channel] = max(0.0, left_bits[channel] - moved)
                        rate_bps[channel] = share
                        since_s[channel] = now
                        _set_time(tree, first_channel + channel, now + left_bits[channel] / share)
            way_changed[up] = False
            server_changed[up] = False
            worker_changed[up] = False

        # 4. Whatever ends at the next instant ends, all of it before anything starts.
        if tree[1] == np.inf:
            return completed
        instant = tree[1] * _INSTANT
        while tree[1] <= instant:
            now = max(now, tree[1])
            lane = _first_lane(tree)
            _set_time(tree, lane, np.inf)
            item = in_hand[lane]
            if lane >= first_channel:
                channel = lane - first_channel
                if stage[channel] == _STARTING:
                    stage[channel] = _MOVING
                    since_s[channel] = now
                    _join(+1, channel, at_server, at_worker, server_changed, worker_changed, way_changed)
                    continue
                stage[channel] = _IDLE
                rate_bps[channel] = 0.0
                _join(-1, channel, at_server, at_worker, server_changed, worker_changed, way_changed)
            in_hand[lane] = -1
            end[item] = now
            completed += 1
            if not is_touched[lane]:
                is_touched[lane] = True
                touched[num_touched] = lane
                num_touched += 1
            server_row = item - first_server_item + num_local
            if item < first_server_item:
                server_row = item % num_local
                base = item - server_row
                for e in range(program.next_ptr[server_row], program.next_ptr[server_row + 1]):
                    other = base + program.next_idx[e]
                    waits[other] -= 1
                    if waits[other] == 0:
                        released[num_released] = other
                        num_released += 1
            for e in range(program.server_ptr[server_row], program.server_ptr[server_row + 1]):
                other = first_server_item + program.server_idx[e]
                waits[other] -= 1
                if waits[other] == 0:
                    released[num_released] = other
                    num_released += 1
