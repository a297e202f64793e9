"""The event loop: consecutive steps of all workers and servers, on flat arrays.

*Nodes* are what one step consists of: *global* ones (operations of servers, reductions) exist once a step,
*local* ones (operations and transfers of a worker) once a step and worker. *Lanes* do one node at a time: a
processor for each worker, then the global lanes (servers' processors, or the network that reductions share),
then for each worker-server pair a receiver that parses what the worker pushed (only if that takes time), a
channel down and a channel up. A node without a lane takes no time and joins others. A node that waits for
nothing any more joins its lane's heap; each lane has at most one pending event, and a tournament tree over
the lanes finds the next. Channels past their startup share the links that they cross, max-min fairly.
With an HTTP/2 window transfers line up as they come, and a larger one stops once and goes to the back.

With u global and L local nodes and W workers, step k's item of global node j is k S + j and that of worker
w's local node i is k S + u + w L + (i - u), S = u + W L. Lane numbers: worker w's processor is w, global lane
g is W + g, the receiver of pair (w, s) W + G + w M + s, its channel downwards comes W M (without receivers
nothing) after that, and the one upwards another W M.
"""

from __future__ import annotations

import numpy as np

from hocket.kernel import kernel, look_for_stop
from hocket.sim.loop.channels import (
    IDLE,
    MOVING,
    STARTING,
    fill_links,
    join,
    new_channels,
    new_room,
    share_alike,
)
from hocket.sim.loop.lanes import drop_first, first_lane, push, set_time
from hocket.sim.loop.step_program import NEXT_STEP

_LOOK_EVERY = 1 << 17  # items and edges, a millisecond or so
# Events this close (relative to the time) are one instant: sums of the same times in another order must not
# decide which operation an idle processor takes.
_INSTANT = 1.0 + 1e-12


@kernel
def _initial_waits(program, num_workers, num_steps):
    """The number of items that every item waits for, (num_steps * S,)."""
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
    """The beginning of each lane's heap in an array with room for all items, (lanes + 1,)."""
    num_lanes = num_workers + program.num_global_lanes + program.num_receivers
    num_lanes += 2 * num_workers * program.num_servers
    first = np.zeros(num_lanes + 1, np.int64)
    for node in range(len(program.lane)):
        if program.lane[node] >= 0:
            for w in range(1 if node < program.num_globals else num_workers):
                first[program.lane[node] + w * program.lane_step[node] + 1] += num_steps
    for lane in range(num_lanes):
        first[lane + 1] += first[lane]
    return first


@kernel
def run_event_loop(program, keys, durations, links, times):
    """Simulate consecutive steps from time 0, into ``times``; return how many items were completed.

    keys (rows, L): which ready local node a lane takes first, the least, all below 2 L; a row for each step
    and worker (step-major) or fewer, which then repeat.
    """
    # Arrays are taken out of their tuples: passing a tuple to a function counts references to all of it.
    next_ptr, next_idx, lane_of, lane_step = (
        program.next_ptr,
        program.next_idx,
        program.lane,
        program.lane_step,
    )
    work = program.work
    local_s, samples, speeds = durations.local_s, durations.samples, durations.speeds
    global_s, global_samples = durations.global_s, durations.global_samples
    route, capacity_bps = links.route, links.capacity_bps
    startup_s, window_bits, alike = links.startup_s, links.window_bits, links.alike
    start, end, stopped, went_on = times.start_s, times.end_s, times.stopped_s, times.went_on_s
    num_steps, num_workers = samples.shape
    u = program.num_globals
    num_locals = len(lane_of) - u
    size = u + num_workers * num_locals
    num_timed = local_s.shape[1]
    first_receiver = num_workers + program.num_global_lanes
    first_channel = first_receiver + program.num_receivers
    key_span = 2 * num_locals  # no key of a step reaches the next one's
    first_come = window_bits > 0.0
    stopped[:] = -1.0

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
    channels = new_channels(num_workers, program.num_servers)
    way_changed = channels.way_changed
    links_alike, room = len(route) == 0, new_room(route, len(capacity_bps))

    waits = _initial_waits(program, num_workers, num_steps)
    ready, ended = np.empty(len(waits), np.int64), np.empty(len(waits), np.int64)  # at this instant
    # Transfers that line up at this instant, (key << 32) + item, and how many have done so before.
    came = np.empty(len(waits) if first_come else 0, np.int64)
    num_ready = num_ended = num_came = num_touched = completed = arrivals = unseen = 0
    for item in range(len(waits)):
        if waits[item] == 0:
            ready[num_ready] = item
            num_ready += 1
    now = 0.0

    while True:
        # 1. Items that waited for ended ones alone are ready: they join their lane's heap or, without, end.
        at_ready = at_ended = 0
        while at_ready < num_ready or at_ended < num_ended:
            if at_ready < num_ready:
                item = ready[at_ready]
                at_ready += 1
                step, place = item // size, item % size
                if place < u:
                    lane = lane_of[place]
                    key = step * u + place
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
                if first_come and lane >= first_channel:
                    came[num_came] = key << 32 | item
                    num_came += 1
                    continue
                push(heap, heap_first[lane], heap_size[lane], key << 32 | item)
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
            unseen += (next_ptr[node + 1] - next_ptr[node]) * (num_workers if worker < 0 else 1)
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
        if num_came > 1:
            came[:num_came].sort()
        for k in range(num_came):
            item = came[k] & 0xFFFFFFFF
            worker, local = (item % size - u) // num_locals, (item % size - u) % num_locals
            lane = lane_of[u + local] + worker * lane_step[u + local]
            push(heap, heap_first[lane], heap_size[lane], arrivals << 32 | item)
            heap_size[lane] += 1
            arrivals += 1
            if not is_touched[lane]:
                is_touched[lane] = True
                touched[num_touched] = lane
                num_touched += 1
        num_came = 0

        # 2. Idle lanes start.
        for k in range(num_touched):
            lane = touched[k]
            is_touched[lane] = False
            if in_hand[lane] >= 0 or heap_size[lane] == 0:
                continue
            item = heap[heap_first[lane]] & 0xFFFFFFFF
            drop_first(heap, heap_first[lane], heap_size[lane])
            heap_size[lane] -= 1
            in_hand[lane] = item
            goes_on = first_come and stopped[item] >= 0.0
            if goes_on:
                went_on[item] = now
            else:
                start[item] = now
            step, place = item // size, item % size
            if lane < num_workers:
                local = (place - u) % num_locals
                seconds = local_s[samples[step, lane], local] if local < num_timed else work[u + local]
                set_time(tree, lane, now + seconds / speeds[lane])
            elif lane < first_receiver:
                set_time(tree, lane, now + global_s[global_samples[step], place])
            elif lane < first_channel:
                set_time(tree, lane, now + work[u + (place - u) % num_locals])
            else:
                channel = lane - first_channel
                bits = work[u + (place - u) % num_locals]
                if first_come:
                    bits = bits - window_bits if goes_on else min(bits, window_bits)
                channels.left_bits[channel] = bits
                if startup_s > 0.0 and not goes_on:
                    channels.stage[channel] = STARTING
                    set_time(tree, lane, now + startup_s)
                else:
                    channels.stage[channel] = MOVING
                    channels.since_s[channel] = now
                    join(+1, channel, alike, channels)
        num_touched = 0

        unseen += 1
        # 3. Where channels came or went, links are shared anew.
        if way_changed[0] or way_changed[1]:
            if links_alike:
                unseen += len(channels.stage)
                share_alike(tree, channels, first_channel, capacity_bps[0], capacity_bps[1], now)
            else:
                unseen += len(channels.stage)
                fill_links(tree, channels, first_channel, route, capacity_bps, room, now)

        if unseen > _LOOK_EVERY:
            unseen = 0
            look_for_stop()

        # 4. Whatever ends at the next instant ends, all of it before anything starts.
        if tree[1] == np.inf:
            return completed
        instant = tree[1] * _INSTANT
        while tree[1] <= instant:
            now = max(now, tree[1])
            lane = first_lane(tree)
            set_time(tree, lane, np.inf)
            item, goes_on_later = in_hand[lane], False
            if lane >= first_channel:
                channel = lane - first_channel
                if channels.stage[channel] == STARTING:
                    channels.stage[channel] = MOVING
                    channels.since_s[channel] = now
                    join(+1, channel, alike, channels)
                    continue
                channels.stage[channel] = IDLE
                channels.rate_bps[channel] = 0.0
                join(-1, channel, alike, channels)
                bits = work[u + (item % size - u) % num_locals]
                goes_on_later = first_come and stopped[item] < 0.0 and bits > window_bits
            in_hand[lane] = -1
            if goes_on_later:
                stopped[item] = now
                push(heap, heap_first[lane], heap_size[lane], arrivals << 32 | item)
                heap_size[lane] += 1
                arrivals += 1
            else:
                end[item] = now
                ended[num_ended] = item
                num_ended += 1
            if not is_touched[lane]:
                is_touched[lane] = True
                touched[num_touched] = lane
                num_touched += 1
