"""The event loop: consecutive steps of all workers and servers, on flat arrays.

*Nodes* are what one step consists of: *global* ones (operations of servers, reductions) exist once a step,
*local* ones (operations and transfers of a worker) once a step and worker. *Lanes* do one node at a time: a
processor for each worker, then the global lanes (servers' processors, or the network that reductions share),
then for each worker-server pair a channel down and a channel up. A node without a lane takes no time and
joins others. A node that waits for nothing any more joins its lane's heap; each lane has at most one pending
event, and a tournament tree over the lanes finds the next. A channel past its startup shares the interfaces
at both of its ends equally with the other channels that are.

With u global and L local nodes and W workers, step k's item of global node j is k S + j and that of worker
w's local node i is k S + u + w L + (i - u), S = u + W L. Lane numbers: worker w's processor is w, global lane
g is W + g, the channel of pair (w, s) W + G + w M + s downwards, and W M further on upwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hocket.kernel import kernel

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NEXT_STEP = 1 << 40  # added to a target: the same node one step later
NO_LANE = -1

_IDLE, _STARTING, _MOVING = 0, 1, 2
# Events this close (relative to the time) are one instant: sums of the same times in another order must not
# decide which operation an idle processor takes.
_INSTANT = 1.0 + 1e-12


class Program(NamedTuple):
    """One step's u global nodes and then L local ones (N in all), and what waits for what.

    A local node waits for local nodes of its own worker; a global one for those of every worker; where a
    global node ends, its local successors on every worker go on.
    """

    num_globals: int  # u
    num_global_lanes: int
    num_servers: int  # whose channels there are; 0: none
    first_come: bool  # global lanes take nodes as they become ready, not the least first
    next_ptr: Ints  # (N + 1,) cuts next_idx: the nodes that wait for each node
    next_idx: Ints
    lane: Ints  # (N,) worker 0's lane; worker w's is lane + w * lane_step
    lane_step: Ints  # (N,)
    bits: Floats  # (N,) size of a transfer, 0 for everything else


class _Channels(NamedTuple):
    stage: Ints  # (2 W M,)
    left_bits: Floats
    rate_bps: Floats
    since_s: Floats
    at_server: Ints  # (2, M) channels that move bytes, downwards and upwards
    at_worker: Ints  # (2, W)
    server_changed: npt.NDArray[np.bool_]
    worker_changed: npt.NDArray[np.bool_]
    way_changed: npt.NDArray[np.bool_]  # (2,)


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
def _join(change, channel, alike, channels):
    """Count a channel in (+1) or out (-1) at both of its ends, and note that shares there have changed."""
    num_servers, num_workers = channels.at_server.shape[1], channels.at_worker.shape[1]
    up, pair = channel // (num_workers * num_servers), channel % (num_workers * num_servers)
    w, s = pair // num_servers, pair % num_servers
    channels.at_server[up, s] += change * alike
    channels.at_worker[up, w] += change
    channels.way_changed[up] = channels.server_changed[up, s] = channels.worker_changed[up, w] = True


@kernel
def _initial_waits(program, num_workers, num_steps):
    """How many items every item waits for, (num_steps * S,)."""
    u, num_nodes = program.num_globals, len(program.lane)
    same, all_steps = np.zeros(num_nodes, np.int32), np.zeros(num_nodes, np.int32)
    for node in range(num_nodes):
        for e in range(program.next_ptr[node], program.next_ptr[node + 1]):
            target = program.next_idx[e]
            later = target >= NEXT_STEP
            if later:
                target -= NEXT_STEP
            count = num_workers if target < u <= node else 1
            all_steps[target] += count
            if not later:
                same[target] += count
    num_locals = num_nodes - u
    size = u + num_workers * num_locals
    waits = np.empty(num_steps * size, np.int32)
    for k in range(num_steps):
        counts = same if k == 0 else all_steps
        waits[k * size : k * size + u] = counts[:u]
        for w in range(num_workers):
            first = k * size + u + w * num_locals
            waits[first : first + num_locals] = counts[u:]
    return waits


@kernel
def _cut_heaps(program, num_workers, num_steps):
    """Where each lane's heap starts in an array with room for all items, (lanes + 1,)."""
    num_lanes = num_workers + program.num_global_lanes + 2 * num_workers * program.num_servers
    first = np.zeros(num_lanes + 1, np.int64)
    for node in range(len(program.lane)):
        if program.lane[node] >= 0:
            for w in range(1 if node < program.num_globals else num_workers):
                first[program.lane[node] + w * program.lane_step[node] + 1] += num_steps
    for lane in range(num_lanes):
        first[lane + 1] += first[lane]
    return first


@kernel
def _channels(num_workers, num_servers):
    num_channels = 2 * num_workers * num_servers
    return _Channels(
        np.zeros(num_channels, np.int64),
        np.zeros(num_channels),
        np.zeros(num_channels),
        np.zeros(num_channels),
        np.zeros((2, num_servers), np.int64),
        np.zeros((2, num_workers), np.int64),
        np.zeros((2, num_servers), np.bool_),
        np.zeros((2, num_workers), np.bool_),
        np.zeros(2, np.bool_),
    )


@kernel
def _share(tree, channels, first_channel, bandwidth_bps, now):
    """Give channels whose neighbours came or went their new share, and their end under it."""
    num_servers, num_workers = channels.at_server.shape[1], channels.at_worker.shape[1]
    num_pairs = num_workers * num_servers
    for up in range(2):
        if not channels.way_changed[up]:
            continue
        for w in range(num_workers):
            for s in range(num_servers):
                channel = up * num_pairs + w * num_servers + s
                if channels.stage[channel] != _MOVING or not (
                    channels.server_changed[up, s] or channels.worker_changed[up, w]
                ):
                    continue
                share = bandwidth_bps / max(channels.at_server[up, s], channels.at_worker[up, w])
                if share != channels.rate_bps[channel]:
                    moved = channels.rate_bps[channel] * (now - channels.since_s[channel])
                    channels.left_bits[channel] = max(0.0, channels.left_bits[channel] - moved)
                    channels.rate_bps[channel] = share
                    channels.since_s[channel] = now
                    _set_time(tree, first_channel + channel, now + channels.left_bits[channel] / share)
        channels.way_changed[up] = False
        channels.server_changed[up] = False
        channels.worker_changed[up] = False


@kernel
def run(
    program,
    keys,
    durations,
    samples,
    global_durations,
    global_samples,
    bandwidth_bps,
    startup_s,
    alike,
    limit_s,
    start,
    end,
):
    """Simulate consecutive steps from time 0; return how many items were completed.

    keys (rows, L): which ready local node a lane takes first, the least, all below 2 L; a row for each step
    and worker (step-major) or fewer, which then repeat; durations (measured steps, n): seconds of the
    operations, the first n local nodes; samples (steps, W): the measured step that each worker repeats;
    global_durations (rows, d): seconds of the first d global nodes, those with a lane; global_samples
    (steps,): the row of each step; alike: how many workers each simulated one stands for, all in lockstep;
    limit_s: give up past this time; start, end (steps * S,): seconds, modified in place.
    """
    # Arrays are taken out of their tuples: passing a tuple to a function counts references to all of it.
    next_ptr, next_idx, lane_of, lane_step = (
        program.next_ptr,
        program.next_idx,
        program.lane,
        program.lane_step,
    )
    first_come = program.first_come
    num_steps, num_workers = samples.shape
    u = program.num_globals
    num_locals = len(lane_of) - u
    size = u + num_workers * num_locals
    first_channel = num_workers + program.num_global_lanes
    key_span = 2 * num_locals  # no key of a step reaches the next one's

    heap_first = _cut_heaps(program, num_workers, num_steps)
    num_lanes = len(heap_first) - 1
    heap = np.empty(heap_first[num_lanes], np.int64)  # ready items of all lanes: (key << 32) + item
    heap_size = np.zeros(num_lanes, np.int64)
    leaves = 1
    while leaves < num_lanes:
        leaves *= 2
    tree = np.full(2 * leaves, np.inf)  # tree[leaves + lane]: when the lane's item in hand goes on
    in_hand = np.full(num_lanes, -1, np.int64)
    touched = np.empty(num_lanes, np.int64)  # lanes that may start something at this instant
    is_touched = np.zeros(num_lanes, np.bool_)
    channels = _channels(num_workers, program.num_servers)
    way_changed = channels.way_changed

    waits = _initial_waits(program, num_workers, num_steps)
    ready, ended = np.empty(len(waits), np.int64), np.empty(len(waits), np.int64)  # at this instant
    num_ready = num_ended = num_touched = completed = arrivals = 0
    for item in range(len(waits)):
        if waits[item] == 0:
            ready[num_ready] = item
            num_ready += 1
    now = 0.0

    while True:
        # 1. What waited for ended items alone is ready: it joins its lane's heap; without a lane it ends.
        at_ready = at_ended = 0
        while at_ready < num_ready or at_ended < num_ended:
            if at_ready < num_ready:
                item = ready[at_ready]
                at_ready += 1
                step, place = item // size, item % size
                if place < u:
                    lane = lane_of[place]
                    key = arrivals if first_come else step * u + place
                    arrivals += 1
                else:
                    worker, local = (place - u) // num_locals, (place - u) % num_locals
                    lane = lane_of[u + local]
                    if lane >= 0:
                        lane += worker * lane_step[u + local]
                        key = step * key_span + keys[(step * num_workers + worker) % len(keys), local]
                if lane < 0:
                    start[item] = end[item] = now
                    ended[num_ended] = item
                    num_ended += 1
                    continue
                _push(heap[heap_first[lane] :], heap_size[lane], key << 32 | item)
                heap_size[lane] += 1
                if not is_touched[lane]:
                    is_touched[lane] = True
                    touched[num_touched] = lane
                    num_touched += 1
                continue
            item = ended[at_ended]
            at_ended += 1
            completed += 1
            step, node = item // size, item % size
            base, worker = step * size, -1
            if node >= u:
                worker = (node - u) // num_locals
                node -= worker * num_locals
            for e in range(next_ptr[node], next_ptr[node + 1]):
                other = base + next_idx[e]
                if next_idx[e] >= NEXT_STEP:
                    other += size - NEXT_STEP
                    if step + 1 == num_steps:
                        continue
                copies = 1
                if other % size >= u:
                    other += max(worker, 0) * num_locals
                    copies = num_workers if worker < 0 else 1
                for _ in range(copies):
                    waits[other] -= 1
                    if waits[other] == 0:
                        ready[num_ready] = other
                        num_ready += 1
                    other += num_locals
        num_ready = num_ended = 0

        # 2. Idle lanes start.
        for k in range(num_touched):
            lane = touched[k]
            is_touched[lane] = False
            if in_hand[lane] >= 0 or heap_size[lane] == 0:
                continue
            item = heap[heap_first[lane]] & 0xFFFFFFFF
            _drop_first(heap[heap_first[lane] :], heap_size[lane])
            heap_size[lane] -= 1
            in_hand[lane] = item
            start[item] = now
            step, place = item // size, item % size
            if lane < num_workers:
                local = (place - u) % num_locals
                _set_time(tree, lane, now + durations[samples[step, lane], local])
            elif lane < first_channel:
                _set_time(tree, lane, now + global_durations[global_samples[step], place])
            else:
                channel = lane - first_channel
                channels.left_bits[channel] = program.bits[u + (place - u) % num_locals]
                if startup_s > 0.0:
                    channels.stage[channel] = _STARTING
                    _set_time(tree, lane, now + startup_s)
                else:
                    channels.stage[channel] = _MOVING
                    channels.since_s[channel] = now
                    _join(+1, channel, alike, channels)
        num_touched = 0

        # 3. Channels whose neighbours came or went get a new share.
        if way_changed[0] or way_changed[1]:
            _share(tree, channels, first_channel, bandwidth_bps, now)

        # 4. Whatever ends at the next instant ends, all of it before anything starts.
        if tree[1] == np.inf or tree[1] > limit_s:
            return completed
        instant = tree[1] * _INSTANT
        while tree[1] <= instant:
            now = max(now, tree[1])
            lane = _first_lane(tree)
            _set_time(tree, lane, np.inf)
            if lane >= first_channel:
                channel = lane - first_channel
                if channels.stage[channel] == _STARTING:
                    channels.stage[channel] = _MOVING
                    channels.since_s[channel] = now
                    _join(+1, channel, alike, channels)
                    continue
                channels.stage[channel] = _IDLE
                channels.rate_bps[channel] = 0.0
                _join(-1, channel, alike, channels)
            item = in_hand[lane]
            in_hand[lane] = -1
            end[item] = now
            ended[num_ended] = item
            num_ended += 1
            if not is_touched[lane]:
                is_touched[lane] = True
                touched[num_touched] = lane
                num_touched += 1
