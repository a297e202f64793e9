"""A virtual clock for the engine: what starts ends when its duration says so.

The next event is the least of a tree over lanes: one a GPU for tasks that compute, one a job for its
launch, its transfer, or the stretch of iterations that it passes as one event, or jumps over. Tasks of one
job that start together end together, and are one event too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.cluster.engine.engine import end_launch, end_task, end_transfer, start_tasks, submit
from hocket.cluster.engine.placing import finish_jobs, place_queue
from hocket.cluster.engine.records import COMPUTING, IN_FORWARD, NEVER, NONE, TRANSFERRING, Ints, Records
from hocket.cluster.engine.state import EngineState
from hocket.cluster.engine.transfer_progress import chunk_end, transfer_end
from hocket.cluster.engine.transfers import decide_transfers, stop_transfer
from hocket.cluster.simulator.fast_forward.fused_tasks import join_tasks, part_interrupted
from hocket.cluster.simulator.fast_forward.periodic import JUMP, jump, land
from hocket.cluster.simulator.fast_forward.same_start import compute_on, form_groups
from hocket.cluster.simulator.fast_forward.uninterrupted import (
    STRETCH,
    begin_stretch,
    catch_up,
    end_stretch,
    may_pass,
    resume_interrupted,
)
from hocket.cluster.simulator.simulation_log import unwritten, write_group, write_level, write_transfer
from hocket.kernel import lean_kernel, look_for_stop
from hocket.sim.loop.lanes import first_lane, set_time

HANDS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "now",
            "turn",  # the instants that there have been at this time
            "arrived",
            "placements",
            "instants",
            "passing",
            "events",
            "spans",
            "levels",
            "level",
        )
    ],
    align=True,
)


class VirtualClock(NamedTuple):
    """Events to come; arrays that :func:`run` modifies in place."""

    tree: Ints  # minima over lanes, GPUs and then jobs
    mate: Ints  # (G,) the next GPU whose task started with this one's
    group_size: Ints  # (G,) of the first of them
    leader: Ints  # (J, 2) where a forward or backward segment started first, at the latest such instant
    stamp: Ints  # (J, 2) that instant's number
    groups: Ints  # (G,) room to work in
    arrivals: Ints  # (J,) jobs by arrival
    stretches: Records  # (J,) STRETCH
    jumps: Records  # (J,) JUMP
    passing: Ints  # (J,) jobs that pass a stretch
    forward_until: Ints  # (J,) of joined tasks, when the forward one ends; past for jobs without
    hands: Records  # (1,) HANDS


def make_clock(state: EngineState) -> VirtualClock:
    """A clock before the first arrival."""
    num_jobs, num_gpus = len(state.jobs), len(state.gpus)
    leaves = 1
    while leaves < num_gpus + num_jobs:
        leaves *= 2

    def room(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return VirtualClock(
        tree=np.full(2 * leaves, NEVER, np.int64),
        mate=room(num_gpus),
        group_size=room(num_gpus),
        leader=room(num_jobs, 2),
        stamp=room(num_jobs, 2),
        groups=room(num_gpus),
        arrivals=np.lexsort([state.jobs["rank"], state.jobs["arrival"]]).astype(np.int64),
        stretches=np.zeros(num_jobs, STRETCH),
        jumps=np.zeros(num_jobs, JUMP),
        passing=room(num_jobs),
        forward_until=np.full(num_jobs, NONE, np.int64),
        hands=np.zeros(1, HANDS),
    )


@lean_kernel
def run(state, rules, clock, log, most_instants):
    """Let time pass until every job is over, or for so many instants; whether every job is over.

    Also comes back when ``log.levels`` is full; it is called again with room.
    """
    jobs, workers, gpus, ports, links = state.jobs, state.workers, state.gpus, state.ports, state.links
    counts, touched, ready, over, changed = (
        state.counts,
        state.touched,
        state.ready,
        state.over,
        state.changed,
    )
    flows, moved, placed, started = state.flows, state.moved, state.placed, state.started
    candidates, altered, left, queue = state.candidates, state.altered, state.bytes_left, state.queue
    segments, batch_bytes, sites = state.segments, state.batch_bytes, state.sites
    fair = (sites.capacity, sites.route, state.rate, state.room, state.load)
    lists = (jobs, workers, gpus, ports, links, batch_bytes, touched, changed, flows, moved, ready, counts)
    tree, mate, group_size, leader, stamp = (
        clock.tree,
        clock.mate,
        clock.group_size,
        clock.leader,
        clock.stamp,
    )
    groups, stretches, jumps, passing, hands = (
        clock.groups,
        clock.stretches,
        clock.jumps,
        clock.passing,
        clock.hands,
    )
    arrivals, forward_until = clock.arrivals, clock.forward_until
    num_jobs, num_gpus = len(jobs), len(gpus)

    for _ in range(most_instants):
        arrived = hands[0].arrived
        now = tree[1]
        if arrived < num_jobs:
            now = min(now, jobs[arrivals[arrived]].arrival)
        if now == NEVER:
            return True
        if log.wanted and hands[0].levels == len(log.levels):
            return False
        hands[0].turn = hands[0].turn + 1 if now == hands[0].now else 1
        hands[0].now = now
        hands[0].instants += 1
        instant = hands[0].instants
        if instant % 256 == 0:
            look_for_stop()
        counts[0].placed = 0
        launched = False

        # Tasks, transfers, launches and stretches end.
        while tree[1] == now:
            lane = first_lane(tree)
            hands[0].events += 1
            if lane < num_gpus:
                if log.wanted:
                    write_group(log, hands, jobs, workers, gpus, segments, mate, lane, now)
                until = compute_on(
                    jobs, workers, gpus, segments, batch_bytes, ready, counts, rules, mate, lane, now
                )
                if until == NEVER:
                    w = gpus[lane].running
                    end_task(
                        jobs,
                        workers,
                        gpus,
                        segments,
                        batch_bytes,
                        touched,
                        ready,
                        over,
                        counts,
                        rules,
                        w,
                        now,
                        mate,
                    )
                set_time(tree, lane, until)
                continue
            j = lane - num_gpus
            set_time(tree, lane, NEVER)
            if jobs[j].stage == COMPUTING and jobs[j].launch > 0:
                end_launch(jobs, workers, gpus, segments, touched, counts, j, now)
                launched = True
                continue
            if jumps[j].iterations > 0:
                land(jobs, batch_bytes, rules, jumps, j)
                set_time(tree, jumps[j].leader, now + segments[jobs[j].first_segment].ticks)
                if jobs[j].stage == TRANSFERRING:
                    set_time(tree, lane, transfer_end(jobs, rules, j))
                continue
            if stretches[j].passing == 1:
                end_stretch(
                    jobs,
                    workers,
                    gpus,
                    segments,
                    touched,
                    over,
                    counts,
                    rules,
                    stretches,
                    passing,
                    hands,
                    j,
                    now,
                )
            elif jobs[j].claims == 1 or now == transfer_end(jobs, rules, j):
                if log.wanted:
                    write_transfer(log, hands, jobs, ports, j, now)
                end_transfer(
                    jobs,
                    workers,
                    gpus,
                    segments,
                    batch_bytes,
                    touched,
                    ports,
                    links,
                    changed,
                    flows,
                    ready,
                    over,
                    counts,
                    rules,
                    j,
                    now,
                )
            else:
                stop_transfer(jobs, ports, links, changed, flows, moved, counts, rules, j, now)
        memory_freed = counts[0].over > 0
        if memory_freed:
            finish_jobs(jobs, workers, gpus, ports, links, over, counts, sites, now)

        # Jobs arrive, and are placed.
        while arrived < num_jobs and jobs[arrivals[arrived]].arrival == now:
            submit(jobs, queue, counts, rules, arrivals[arrived])
            arrived += 1
        if counts[0].queued > 0 and (memory_freed or arrived > hands[0].arrived):
            for i in range(hands[0].passing):
                catch_up(jobs, rules, stretches, passing[i], now)
            place_queue(
                jobs, workers, gpus, ports, links, segments, touched, queue, placed, counts, sites, rules, now
            )
        hands[0].events += arrived - hands[0].arrived
        hands[0].arrived = arrived
        hands[0].placements += counts[0].placed
        for i in range(counts[0].placed):
            if jobs[placed[i]].launch > 0:
                set_time(tree, num_gpus + placed[i], now + jobs[placed[i]].launch)
        next_arrival = jobs[arrivals[arrived]].arrival if arrived < num_jobs else NEVER
        # The call costs more than to find out that there is nothing to do, which is nearly always so.
        came = launched or counts[0].placed > 0
        interrupted = came
        for i in range(counts[0].touched):
            w = gpus[touched[i]].running
            interrupted |= w != NONE and stretches[workers[w].job].passing == 1
        if interrupted:
            resume_interrupted(lists, placed, rules, tree, mate, stretches, passing, hands, now)
            if came:
                part_interrupted(
                    jobs,
                    workers,
                    gpus,
                    touched,
                    counts,
                    tree,
                    leader,
                    forward_until,
                    hands[0].turn == 1,
                    now,
                )

        # Transfers start and stop.
        if counts[0].ready > 0 or counts[0].changed > 0:
            decide_transfers(
                jobs,
                ports,
                links,
                changed,
                flows,
                moved,
                ready,
                counts,
                candidates,
                altered,
                left,
                fair,
                rules,
                now,
            )
        for i in range(counts[0].moved):
            j = moved[i]
            jobs[j].moved = 0
            end = NEVER
            if jobs[j].stage == TRANSFERRING:
                end = transfer_end(jobs, rules, j) if jobs[j].claims == 1 else chunk_end(jobs, rules, j, now)
            set_time(tree, num_gpus + j, end)
            if log.wanted:
                if jobs[j].stage == TRANSFERRING and log.opened[j] == NONE:
                    log.opened[j] = now
                elif jobs[j].stage != TRANSFERRING and log.opened[j] != NONE:
                    write_transfer(log, hands, jobs, ports, j, now)
        counts[0].moved = 0

        # GPUs start to compute, or go on.
        num_groups = 0
        if counts[0].touched > 0:
            start_tasks(jobs, workers, gpus, touched, started, counts)
            num_groups = form_groups(
                jobs,
                workers,
                gpus,
                segments,
                counts,
                started,
                mate,
                group_size,
                leader,
                stamp,
                groups,
                instant,
            )
        for i in range(num_groups):
            g = groups[i]
            w = gpus[g].running
            j = workers[w].job
            whole = workers[w].phase == IN_FORWARD and group_size[g] == jobs[j].gpus
            if whole and unwritten(log, hands, jobs, j, now):
                if jobs[j].overlaps == 1:
                    until = jump(
                        jobs,
                        workers,
                        gpus,
                        ports,
                        links,
                        counts,
                        jumps,
                        hands[0].placements,
                        j,
                        g,
                        next_arrival,
                        now,
                    )
                elif may_pass(jobs, workers, gpus, ports, links, rules, j):
                    until = begin_stretch(jobs, rules, stretches, passing, hands, j, now)
                else:
                    until = NEVER
                if until != NEVER:
                    set_time(tree, num_gpus + j, until)
                    continue
                until = join_tasks(jobs, workers, gpus, forward_until, j, now)
                if until != NEVER:
                    set_time(tree, g, until)
                    continue
            k = workers[w].phase // 2
            set_time(tree, g, now + segments[jobs[j].first_segment + k].ticks)

        if log.wanted:
            write_level(log, hands, links, rules.num_servers, now)
    return False
