"""A virtual clock for the engine: what starts ends when its duration says so.

The next event is the least of a tree over lanes: one a GPU for tasks that compute, one a job for its
transfer, or for the stretch of iterations that it passes as one event. Tasks of one job that start together
end together, and are one event too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.cluster.engine import end_task, end_transfer, start_tasks, submit
from hocket.cluster.placing import finish_jobs, place_queue
from hocket.cluster.progress import chunk_end, transfer_end
from hocket.cluster.records import IN_FORWARD, NEVER, NONE, TRANSFERRING, Ints, Records
from hocket.cluster.state import State
from hocket.cluster.stretches import (
    STRETCH,
    begin_stretch,
    catch_up,
    end_stretch,
    may_pass,
    resume_interrupted,
)
from hocket.cluster.transfers import decide_transfers, stop_transfer
from hocket.kernel import kernel
from hocket.sim.lanes import first_lane, set_time

HANDS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "now",
            "turn",  # the instants that there have been at this time
            "arrived",
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
# What a span shows.
SHOWN_FORWARD, SHOWN_BACKWARD, SHOWN_REDUCE = range(3)


class Clock(NamedTuple):
    """What is about to happen; arrays that :func:`run` modifies in place."""

    tree: Ints  # minima over lanes, GPUs and then jobs
    mate: Ints  # (G,) the next GPU whose task started with this one's
    group_size: Ints  # (G,) of the first of them
    leader: Ints  # (J, 2) where a forward or backward segment started first, at the latest such instant
    stamp: Ints  # (J, 2) that instant's number
    groups: Ints  # (G,) room to work in
    arrivals: Ints  # (J,) jobs by arrival
    stretches: Records  # (J,) STRETCH
    passing: Ints  # (J,) jobs that pass a stretch
    hands: Records  # (1,) HANDS


class Log(NamedTuple):
    """What is written down; nothing if ``wanted`` is False."""

    wanted: bool
    from_tick: int
    opened: Ints  # (J,) when the transfer under way started that is not yet written down, or NONE
    spans: Ints  # (most, 5): what is shown, GPU or server, job, start, end
    levels: Ints  # (most, 2): instant, transfers on the busiest server from then on


def make_clock(state: State) -> Clock:
    """A clock before the first arrival."""
    num_jobs, num_gpus = len(state.jobs), len(state.gpus)
    leaves = 1
    while leaves < num_gpus + num_jobs:
        leaves *= 2

    def room(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return Clock(
        tree=np.full(2 * leaves, NEVER, np.int64),
        mate=room(num_gpus),
        group_size=room(num_gpus),
        leader=room(num_jobs, 2),
        stamp=room(num_jobs, 2),
        groups=room(num_gpus),
        arrivals=np.lexsort([state.jobs["rank"], state.jobs["arrival"]]).astype(np.int64),
        stretches=np.zeros(num_jobs, STRETCH),
        passing=room(num_jobs),
        hands=np.zeros(1, HANDS),
    )


@kernel
def _write(log, hands, shown, where, j, start, end):
    spans = log.spans
    if start >= log.from_tick and hands[0].spans < len(spans):
        i = hands[0].spans
        spans[i, 0], spans[i, 1], spans[i, 2], spans[i, 3], spans[i, 4] = shown, where, j, start, end
        hands[0].spans += 1


@kernel
def _unwritten(log, hands, jobs, j, now):
    """Whether nothing of the iterations that job j has left is to be written down."""
    if not log.wanted:
        return True
    # Transfers are, to the end: how many there are at a time is.
    end = now + jobs[j].remaining * (jobs[j].forward + jobs[j].backward)
    return jobs[j].num_servers == 0 and (hands[0].spans == len(log.spans) or end <= log.from_tick)


@kernel
def _write_transfer(log, hands, jobs, ports, j, end):
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        _write(log, hands, SHOWN_REDUCE, ports[p].link, j, log.opened[j], end)
    log.opened[j] = NONE


@kernel
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
    groups, stretches, passing, hands = clock.groups, clock.stretches, clock.passing, clock.hands
    arrivals = clock.arrivals
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
        counts[0].placed = 0

        # Tasks, transfers and stretches end.
        while tree[1] == now:
            lane = first_lane(tree)
            set_time(tree, lane, NEVER)
            hands[0].events += 1
            if lane < num_gpus:
                g = lane
                while g != NONE:
                    w = gpus[g].running
                    if log.wanted:
                        j = workers[w].job
                        segment = segments[jobs[j].first_segment + workers[w].phase // 2]
                        shown = SHOWN_BACKWARD if segment.backward == 1 else SHOWN_FORWARD
                        _write(log, hands, shown, g, j, now - segment.ticks, now)
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
                    )
                    g = mate[g]
                continue
            j = lane - num_gpus
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
                    _write_transfer(log, hands, jobs, ports, j, now)
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
        # The call costs more than to find out that there is nothing to do, which is nearly always so.
        interrupted = counts[0].placed > 0
        for i in range(counts[0].touched):
            w = gpus[touched[i]].running
            interrupted |= w != NONE and stretches[workers[w].job].passing == 1
        if interrupted:
            resume_interrupted(lists, placed, rules, tree, mate, stretches, passing, hands, now)

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
                    _write_transfer(log, hands, jobs, ports, j, now)
        counts[0].moved = 0

        # GPUs start to compute, or go on.
        start_tasks(jobs, workers, gpus, touched, started, counts)
        num_groups = 0
        for i in range(counts[0].started):
            w = started[i]
            g, j, k = workers[w].gpu, workers[w].job, workers[w].phase // 2
            part = segments[jobs[j].first_segment + k].backward
            first = leader[j, part]
            # Workers that have waited for others' tasks may be in different segments of one task.
            if stamp[j, part] == instant and workers[gpus[first].running].phase == workers[w].phase:
                mate[g], mate[first] = mate[first], g
                group_size[first] += 1
            else:
                stamp[j, part], leader[j, part] = instant, g
                mate[g], group_size[g] = NONE, 1
                groups[num_groups] = g
                num_groups += 1
        for i in range(num_groups):
            g = groups[i]
            w = gpus[g].running
            j = workers[w].job
            if (
                workers[w].phase == IN_FORWARD
                and group_size[g] == jobs[j].gpus
                and _unwritten(log, hands, jobs, j, now)
                and may_pass(jobs, workers, gpus, ports, links, rules, j)
            ):
                set_time(tree, num_gpus + j, begin_stretch(jobs, rules, stretches, passing, hands, j, now))
            else:
                k = workers[w].phase // 2
                set_time(tree, g, now + segments[jobs[j].first_segment + k].ticks)

        if log.wanted:
            level = 0
            for server in range(rules.num_servers):
                level = max(level, links[server].count)
            if level != hands[0].level:
                log.levels[hands[0].levels, 0], log.levels[hands[0].levels, 1] = now, level
                hands[0].levels += 1
                hands[0].level = level
    return False
