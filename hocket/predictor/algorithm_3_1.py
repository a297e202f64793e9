"""Algorithm 3.1: training by asynchronous workers, which drift apart, on flat arrays.

Source: Li et al., "Throughput Prediction of Asynchronous SGD in TensorFlow" (ICPE 2020), Algorithm 3.1.

Every worker runs through one step after the other on its own. A step's *nodes* are operations, parsings and
transfers; a *lane* does one node at a time: lane 0 of a worker is its processor, 1 + s its share of server
s's processor, 1 + M + s its stream of pulls from server s, 1 + 2 M + s that of its pushes. A node that waits
for nothing any more joins its lane's queue. In synchronous training update operations are *global* nodes,
once for all workers, on a lane for each server. Where a server does nodes *in turn*, it does those of one
worker while its next one is ready, then those of the worker that waits longest. Streams' shares of links are
in :mod:`hocket.predictor.shared_links`.

Where servers are *apart*, each of them begins a worker's next step by itself, once it has done its part of
the last one and the worker its own: two steps of a worker are then under way, an even and an odd one.

Differs from the paper
----------------------
* Processors take nodes in the order of the step's file, and without a window streams take theirs in the
  plan's. :mod:`hocket.predictor.lowering` says how else the nodes differ from the paper's.
* Synchronous steps, nodes in turn, servers apart, and workers that begin apart are ours.
"""

from __future__ import annotations

import numpy as np

from hocket.kernel import kernel, look_for_stop
from hocket.predictor.lane_queues import cut_queues, enqueue, give_turn, may_start
from hocket.predictor.shared_links import IDLE, MOVING, STARTING, Streams, advance, first_ends, refill
from hocket.predictor.step_parts import begin_all, count_parts, end_node
from hocket.sim.draws import draw_number, draw_order
from hocket.sim.loop.lanes import first_lane, next_lane, set_time

_NOT_BEGUN = -2  # in hand of a worker's processor: no node, but the time before its first step
# As in sim/loop/event_loop.py: events this close (relative to the time) are one instant.
_INSTANT = 1.0 + 1e-12
_LOOK_EVERY = 1 << 17  # nodes and streams, some milliseconds


@kernel
def run_algorithm_3_1(program, times, links, rules, log, ends):
    """Simulate until ``ends`` is full; return how many chunks were logged."""
    # Arrays are taken out of their tuples: passing a tuple to a function counts references to all of it.
    next_ptr, next_idx, lane_of, rank = program.next_ptr, program.next_idx, program.lane, program.rank
    bits, batch, initial, awaited = program.bits, program.batch, program.initial, program.awaited
    to_ptr, to_idx, global_server = program.to_ptr, program.to_idx, program.global_server
    global_ptr, global_idx, global_waits = program.global_ptr, program.global_idx, program.global_waits.copy()
    first_waits, first_global_waits = program.waits, program.global_waits
    num_timed, num_servers, in_turn = program.num_timed, program.num_servers, program.in_turn
    apart, server_of = program.apart, program.server
    alike, worker_bps, server_bps = links.alike, links.worker_bps, links.server_bps
    route, capacity_bps = links.route, links.capacity_bps
    window_bits, startup_s = links.window_bits, links.startup_s
    local_s, global_s = times.local_s, times.global_s
    slowness, start_s = times.slowness, times.start_s
    shuffled, needed, seed = rules.shuffled, rules.needed, rules.seed
    step_end, step_worker, watch = ends.end_s, ends.worker, ends.watch
    log_from_s, log_to_s = log.from_s, log.to_s
    log_worker, log_node, log_start, log_end = log.worker, log.node, log.start_s, log.end_s
    num_workers, num_nodes, num_globals = len(slowness), len(lane_of), len(global_server)
    synchronous, first_come = needed > 0, window_bits > 0.0

    lanes_each = 1 + 3 * num_servers
    first_global_lane = num_workers * lanes_each
    num_lanes = first_global_lane + num_servers
    queue_first = cut_queues(lane_of, num_workers, num_servers, num_globals)
    queue = np.empty(queue_first[num_lanes], np.int64)  # (key << 24) + node, ascending from head to tail
    head, tail = queue_first[:-1].copy(), queue_first[:-1].copy()
    leaves = 1
    while leaves < num_lanes:
        leaves *= 2
    tree = np.full(2 * leaves, np.inf)  # tree[leaves + lane]: when the lane's node in hand goes on
    worker_of_lane = np.full(num_lanes, -1, np.int64)
    for lane in range(first_global_lane):
        worker_of_lane[lane] = lane // lanes_each
    in_hand = np.full(num_lanes, -1, np.int64)
    since = np.zeros(num_lanes)  # when it was taken
    touched, num_touched = np.empty(2 * len(queue) + 2 * num_lanes, np.int64), np.zeros(1, np.int64)

    # Of each server: the lane whose turn it is, -1 for none, and those that wait for theirs, in a ring.
    turn_of = np.full(num_servers, -1, np.int64)
    waiting_lanes = np.empty((num_servers, num_workers), np.int64)
    first_waiting, num_waiting = np.zeros(num_servers, np.int64), np.zeros(num_servers, np.int64)

    # Streams: pulls of (w, s) are channel w M + s, pushes W M further on.
    num_pairs = num_workers * num_servers
    stage, chunk_bits = np.zeros(2 * num_pairs, np.int64), np.zeros(2 * num_pairs)
    rest_bits = np.zeros((num_workers, num_nodes - num_timed))
    had_turn = np.zeros((num_workers, num_nodes - num_timed), np.bool_)
    clock, clock_at, active = np.zeros(2), np.zeros(2), np.zeros(2, np.int64)
    clock_leaves = 1
    while clock_leaves < num_workers:
        clock_leaves *= 2
    end_on_clock = np.full((2, 2 * clock_leaves), np.inf)
    clock_end_s = np.full(2, np.inf)  # when the first of these ends will come
    rate, old_rate, rate_at = np.zeros(2 * num_pairs), np.zeros(2 * num_pairs), np.zeros(2 * num_pairs)
    room_bps, load = np.empty(len(capacity_bps)), np.empty(len(capacity_bps), np.int64)
    lane_of_channel, channel_of_lane = np.empty(2 * num_pairs, np.int64), np.full(num_lanes, -1, np.int64)
    for c in range(2 * num_pairs):
        way, pair = c // num_pairs, c % num_pairs
        lane = pair // num_servers * lanes_each + 1 + (1 + way) * num_servers + pair % num_servers
        lane_of_channel[c], channel_of_lane[lane] = lane, c
    came_or_went = False
    ending, num_ending = np.empty(num_lanes, np.int64), 0

    # Of even and odd steps.
    waits = np.empty(2 * num_workers * num_nodes, np.int32)
    left, sample = np.zeros((2, num_workers), np.int64), np.zeros((2, num_workers), np.int64)
    # Steps that each worker has begun, and each server of each worker's; nodes that they have left to do.
    begun, served = np.zeros(num_workers, np.int64), np.zeros((num_workers, num_servers), np.int64)
    parts, left_of = count_parts(server_of, num_servers), np.zeros((num_workers, num_servers + 1), np.int64)
    begins_each = num_servers if apart else 1
    order = np.empty(program.num_batches, np.int64)
    begins, num_begins = np.empty(num_workers * begins_each, np.int64), 0  # which parts begin now
    for w in range(num_workers - 1, -1, -1):
        if start_s[w] > 0.0:
            in_hand[w * lanes_each] = _NOT_BEGUN
            set_time(tree, w * lanes_each, start_s[w])
        else:
            num_begins = begin_all(w, begins_each, begins, num_begins)
    ended, ended_worker, num_ended = np.empty(num_lanes, np.int64), np.empty(num_lanes, np.int64), 0
    arrivals = completed = logged = unseen = 0
    # Synchronous: for which step each worker computes, whether it rests, and what the present step waits for.
    label, rests = np.zeros(num_workers, np.int64), np.zeros(num_workers, np.bool_)
    arrived = np.zeros(num_nodes, np.int64)
    to_arrive = num_finished = global_left = global_sample = 0
    opens = synchronous  # the next synchronous step does, at this instant
    now = 0.0

    while True:
        # 1. Nodes that waited for ended ones alone are ready; steps end and begin.
        at_ended = 0
        while at_ended < num_ended or num_begins > 0 or opens:
            if opens:
                opens = False
                for node in range(num_nodes):
                    arrived[node] = 0
                unseen += num_nodes + num_workers
                to_arrive, num_finished, global_left = awaited.sum(), 0, num_globals
                global_sample = draw_number(seed, num_workers, completed) % len(global_s)
                for node in range(num_globals):
                    global_waits[node] = first_global_waits[node]
                    if global_waits[node] == 0:
                        lane = first_global_lane + global_server[node]
                        enqueue(node << 24 | node, lane, queue, head, tail, touched, num_touched)
                for w in range(num_workers):
                    if rests[w]:
                        begins[num_begins] = w
                        num_begins += 1
                continue
            beginning = at_ended == num_ended
            reached_first = reached_last = 0  # global nodes that wait for one thing less
            ready_first = ready_last = 0  # local ones
            if beginning:
                num_begins -= 1
                w, s = begins[num_begins] // begins_each, begins[num_begins] % begins_each
                served[w, s] += 1
                unseen += num_nodes
                own_begins = begun[w] < served[w, s]
                odd = served[w, s] & 1
                base = (odd * num_workers + w) * num_nodes
                if own_begins:
                    begun[w] = served[w, s]
                    for node in range(num_nodes):
                        waits[base + node] = first_waits[node]
                    left[odd, w], left_of[w, -1], label[w], rests[w] = num_nodes, parts[-1], completed, False
                    sample[odd, w] = draw_number(seed, w, begun[w] - 1) % len(local_s)
                left_of[w, s] = parts[s]
                for stream in range(num_nodes - num_timed):
                    if not apart or server_of[num_timed + stream] == s:
                        rest_bits[w, stream], had_turn[w, stream] = bits[stream], False
                if shuffled:
                    draw_order(seed, w, served[w, s] - 1, order)
                ready_last = len(initial)
            else:
                w, node = ended_worker[at_ended], ended[at_ended]
                unseen += 1
                at_ended += 1
                if w >= 0:
                    ready_first, ready_last = next_ptr[node], next_ptr[node + 1]
                    s = server_of[node] if apart else 0
                    odd = (begun[w] if s < 0 else served[w, s]) & 1
                    base = (odd * num_workers + w) * num_nodes
                    left[odd, w] -= 1
                    if synchronous and label[w] == completed:
                        arrived[node] += 1
                        if arrived[node] == needed:
                            reached_first, reached_last = to_ptr[node], to_ptr[node + 1]
                            if awaited[node]:
                                to_arrive -= 1
                else:
                    reached_first, reached_last = global_ptr[node], global_ptr[node + 1]
                    global_left -= 1
            for e in range(ready_first, ready_last):
                node = initial[e] if beginning else next_idx[e]
                if not beginning:
                    waits[base + node] -= 1
                    if waits[base + node] > 0:
                        continue
                elif apart and server_of[node] != s and not (own_begins and server_of[node] < 0):
                    continue
                key = rank[node]
                if node >= num_timed:
                    if shuffled and batch[node - num_timed] >= 0:
                        key = order[batch[node - num_timed]]
                    if first_come:
                        # A step's pulls come together, in their order; what comes later has greater keys.
                        key = arrivals + (key if beginning else 0)
                        arrivals += 0 if beginning else 1
                lane = w * lanes_each + lane_of[node]
                enqueue(key << 24 | node, lane, queue, head, tail, touched, num_touched)
            if beginning:
                arrivals += num_nodes
            for e in range(reached_first, reached_last):
                node = (global_idx if w < 0 else to_idx)[e]
                global_waits[node] -= 1
                if global_waits[node] == 0:
                    lane = first_global_lane + global_server[node]
                    enqueue(node << 24 | node, lane, queue, head, tail, touched, num_touched)
            step_over = False
            if w >= 0 and apart and not beginning:
                num_begins = end_node(w, s, left_of, begun, served, begins, num_begins)
            if w >= 0 and left[odd, w] == 0:
                if synchronous and label[w] == completed:
                    rests[w] = True
                    num_finished += 1
                else:
                    # Asynchronous, or its gradients came too late and it joins the present step.
                    if not apart:
                        begins[num_begins] = w
                        num_begins += 1
                    step_over = not synchronous
            if synchronous:
                step_over = num_finished >= needed and to_arrive <= 0 and global_left == 0
                opens = step_over
            if step_over:
                step_end[completed], step_worker[completed] = now, -1 if synchronous else w
                completed += 1
                watch[0] = completed
                if completed == len(step_end):
                    return logged
        num_ended = 0

        # 2. Idle lanes start.
        for k in range(num_touched[0]):
            lane = touched[k]
            if in_hand[lane] >= 0:
                continue
            if head[lane] == tail[lane]:
                if tree[leaves + lane] < np.inf:
                    set_time(tree, lane, np.inf)
                continue
            node = queue[head[lane]] & 0xFFFFFF
            if lane < first_global_lane and in_turn[node]:
                turns = (turn_of, waiting_lanes, first_waiting, num_waiting)
                if not may_start(lane, lane_of[node] - 1, turns):
                    if tree[leaves + lane] < np.inf:
                        set_time(tree, lane, np.inf)
                    continue
            head[lane] += 1
            if head[lane] == tail[lane]:
                head[lane] = tail[lane] = queue_first[lane]
            in_hand[lane], since[lane] = node, now
            if lane >= first_global_lane:
                set_time(tree, lane, now + global_s[global_sample, node])
                continue
            w, c = worker_of_lane[lane], channel_of_lane[lane]
            if c < 0:
                factor = slowness[w] if lane == w * lanes_each else 1.0
                s = server_of[node] if apart else 0
                odd = (begun[w] if s < 0 else served[w, s]) & 1
                set_time(tree, lane, now + factor * local_s[sample[odd, w], node])
                continue
            way, stream = np.int64(c >= num_pairs), node - num_timed
            chunk_bits[c] = rest_bits[w, stream]
            if not had_turn[w, stream]:
                had_turn[w, stream] = True
                if first_come:
                    chunk_bits[c] = min(chunk_bits[c], window_bits)
                if startup_s > 0.0:
                    stage[c] = STARTING
                    rest_bits[w, stream] -= chunk_bits[c]
                    set_time(tree, lane, now + startup_s)
                    continue
            rest_bits[w, stream] -= chunk_bits[c]
            stage[c] = MOVING
            came_or_went = True
            if alike:
                advance(clock, clock_at, way, active, worker_bps, server_bps, now)
                active[way] += 1
                set_time(end_on_clock[way], w, clock[way] + chunk_bits[c])
            else:
                rate[c], rate_at[c] = 0.0, now
        num_touched[0] = 0

        # 3. Streams that move share their links anew.
        if came_or_went and alike:
            first_ends(clock, clock_at, active, end_on_clock, worker_bps, server_bps, clock_end_s)
        elif came_or_went:
            streams = Streams(stage, chunk_bits, rate, old_rate, rate_at, room_bps, load)
            refill(tree, lane_of_channel, streams, route, capacity_bps, now)
            unseen += len(stage)
        came_or_went = False
        if unseen > _LOOK_EVERY:
            unseen = 0
            look_for_stop()

        # 4. Whatever ends at the next instant ends, all of it before anything starts.
        next_s = min(tree[1], clock_end_s[0], clock_end_s[1])
        assert next_s < np.inf, "a plan that passed its checks cannot deadlock"
        now = max(now, next_s)
        instant = now * _INSTANT
        more = tree[1] <= instant
        while more:
            lane, more = next_lane(tree, instant)
            # Alone at its instant, a lane keeps its time until it starts something else or is found idle.
            if more:
                set_time(tree, lane, np.inf)
            c = channel_of_lane[lane]
            if c >= 0:
                came_or_went = True
                if stage[c] == STARTING:
                    stage[c] = MOVING
                    set_time(tree, lane, np.inf)
                    w, way = worker_of_lane[lane], np.int64(c >= num_pairs)
                    if alike:
                        advance(clock, clock_at, way, active, worker_bps, server_bps, now)
                        active[way] += 1
                        set_time(end_on_clock[way], w, clock[way] + chunk_bits[c])
                    else:
                        rate[c], rate_at[c] = 0.0, now
                    continue
                stage[c] = IDLE
            ending[num_ending] = lane
            num_ending += 1
        for way in range(2):
            if clock_end_s[way] > instant:
                continue
            came_or_went = True
            advance(clock, clock_at, way, active, worker_bps, server_bps, now)
            # The clock at the end of the instant; the second term is for rounding on the clock itself.
            bps = min(worker_bps, server_bps / active[way])
            due = clock[way] + bps * (instant - now) + clock[way] * (_INSTANT - 1.0)
            while end_on_clock[way, 1] <= due:
                w = first_lane(end_on_clock[way])
                set_time(end_on_clock[way], w, np.inf)
                active[way] -= 1
                c = way * num_pairs + w
                stage[c] = IDLE
                ending[num_ending] = lane_of_channel[c]
                num_ending += 1
        for k in range(num_ending):
            lane = ending[k]
            node = in_hand[lane]
            in_hand[lane] = -1
            touched[num_touched[0]] = lane
            num_touched[0] += 1
            w = worker_of_lane[lane]
            if node == _NOT_BEGUN:
                num_begins = begin_all(w, begins_each, begins, num_begins)
                continue
            if (
                w >= 0
                and in_turn[node]
                and (head[lane] == tail[lane] or not in_turn[queue[head[lane]] & 0xFFFFFF])
            ):
                turns = (turn_of, waiting_lanes, first_waiting, num_waiting)
                touched[num_touched[0]] = give_turn(lane, lane_of[node] - 1, turns)
                num_touched[0] += 1
            if now > log_from_s and since[lane] < log_to_s and logged < len(log_node):
                log_worker[logged], log_node[logged] = w, node
                log_start[logged], log_end[logged] = since[lane], now
                logged += 1
            if w >= 0 and node >= num_timed and rest_bits[w, node - num_timed] > 0.0:
                # The rest of a stream larger than the window goes to the back of its queue, once.
                enqueue(arrivals << 24 | node, lane, queue, head, tail, touched, num_touched)
                arrivals += 1
                continue
            ended_worker[num_ended], ended[num_ended] = w, node
            num_ended += 1
        num_ending = 0
