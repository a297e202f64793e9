"""A virtual clock for the engine: what starts ends when its duration says so.

The next event is the least of a tree over lanes: one a GPU for tasks that compute, one a job for its transfer.
Tasks of one job that start together end together, and are one event.

What nothing can interrupt is one event as well, a *stretch* of iterations:

* of a job inside one server that starts to compute on all its GPUs: it stays ahead of those that wait there,
  because what is left of it becomes less and theirs stays as it is. It ends when somebody comes to one of the
  GPUs who goes first (which a clock alone can see: a job placed, or one whose transfer has ended).
* of a job on several servers that is alone on its GPUs and on its links, until somebody is placed on either.

Durations are whole ticks, so what a stretch has come to at any instant is a division, exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.cluster.engine import (
    end_iterations,
    end_task,
    end_transfer,
    finish_jobs,
    first_ready,
    place_queue,
    start_tasks,
    submit,
    touch,
)
from hocket.cluster.policies.dispatch import before, key_of
from hocket.cluster.progress import alone_ticks, chunk_end, reset, transfer_end
from hocket.cluster.records import (
    BACKWARD,
    FORWARD,
    IN_BACKWARD,
    IN_FORWARD,
    NEVER,
    NONE,
    TRANSFERRING,
    WAITING,
    Ints,
    Records,
)
from hocket.cluster.state import State
from hocket.cluster.transfers import decide_transfers, occupy, stop_transfer, want_transfer
from hocket.kernel import kernel
from hocket.sim.lanes import first_lane, set_time

STRETCH = np.dtype(
    [
        ("passing", np.int64),
        ("began", np.int64),
        ("since", np.int64),  # the iteration under way when it was last looked at
        ("period", np.int64),
        ("place", np.int64),  # in ``passing``
    ],
    align=True,
)
HANDS = np.dtype(
    [(name, np.int64) for name in ("now", "arrived", "instants", "passing", "events", "spans", "levels", "level")],
    align=True,
)
# What a span shows.
SHOWN_FORWARD, SHOWN_BACKWARD, SHOWN_REDUCE = range(3)


class Clock(NamedTuple):
    """What is about to happen; arrays that :func:`run` modifies in place."""

    tree: Ints  # minima over lanes, GPUs and then jobs
    mate: Ints  # (G,) the next GPU whose task started with this one's
    group_size: Ints  # (G,) of the first of them
    leader: Ints  # (J, 2) the first GPU on which a forward or backward task started at the latest such instant
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
def _write_transfer(log, hands, jobs, ports, j, end):
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        _write(log, hands, SHOWN_REDUCE, ports[p].link, j, log.opened[j], end)
    log.opened[j] = NONE


@kernel
def _may_pass(jobs, workers, gpus, ports, links, rules, j):
    """Whether job j, which starts to compute on all its GPUs, can pass iterations as one."""
    if jobs[j].remaining < 2:
        return False
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
        if links[ports[p].link].user != p or ports[p].next != NONE:
            return False
    if jobs[j].num_hops > 0 and alone_ticks(jobs, rules, j) == 0:
        return False  # its end and what follows from it are one instant: in which order, events tell
    if jobs[j].num_hops == 0 and rules.steady:
        return True
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        if gpus[workers[w].gpu].resident != w or workers[w].next != NONE:
            return False
    return True


@kernel
def _begin_stretch(jobs, rules, clock, j, now):
    stretches, hands = clock.stretches, clock.hands
    period = jobs[j].forward + jobs[j].backward
    if jobs[j].num_servers > 0:
        period += alone_ticks(jobs, rules, j)
    jobs[j].gpu_wait += now - jobs[j].since
    stretches[j].passing, stretches[j].began = 1, now
    stretches[j].since, stretches[j].period = now, period
    stretches[j].place = hands[0].passing
    clock.passing[hands[0].passing] = j
    hands[0].passing += 1
    return now + jobs[j].remaining * period


@kernel
def _catch_up(jobs, rules, stretches, j, now):
    """Count the iterations that job j, which passes a stretch, has completed; those yet to begin remain."""
    done = (now - stretches[j].since) // stretches[j].period
    stretches[j].since += done * stretches[j].period
    jobs[j].remaining -= done
    jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
    if jobs[j].num_servers > 0:
        jobs[j].transferring += done * (stretches[j].period - jobs[j].forward - jobs[j].backward)
        jobs[j].sent += done * jobs[j].size


@kernel
def _close_stretch(clock, j):
    """Take job j off those that pass a stretch."""
    clock.hands[0].passing -= 1
    last = clock.passing[clock.hands[0].passing]
    clock.passing[clock.stretches[j].place] = last
    clock.stretches[last].place = clock.stretches[j].place
    clock.stretches[j].passing = 0


@kernel
def _challenged(jobs, workers, gpus, rules, stretches, g, j, now):
    """Whether somebody who is ready for GPU g may get it before job j is through with its stretch there."""
    if jobs[j].num_servers > 0 or not rules.steady:
        return True
    _catch_up(jobs, rules, stretches, j, now)
    w = first_ready(jobs, workers, gpus, g)
    return w != NONE and before(jobs, workers[w].job, j)


@kernel
def _end_stretch(jobs, workers, gpus, touched, over, counts, rules, clock, j, now):
    """Let job j be over: nothing has interrupted it."""
    _catch_up(jobs, rules, clock.stretches, j, now)
    _close_stretch(clock, j)
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        workers[w].phase = WAITING
        gpus[workers[w].gpu].running = NONE
        touch(gpus, touched, counts, workers[w].gpu)
    end_iterations(jobs, workers, gpus, touched, over, counts, rules, j, 0, now)


@kernel
def _resume(state, rules, clock, j, now):
    """Let job j, in the middle of a stretch, go on event by event, as if it had come here so."""
    jobs, workers, gpus, counts, tree = state.jobs, state.workers, state.gpus, state.counts, clock.tree
    _catch_up(jobs, rules, clock.stretches, j, now)
    _close_stretch(clock, j)
    set_time(tree, len(gpus) + j, NEVER)
    begun = clock.stretches[j].since
    jobs[j].since, jobs[j].pending = begun, jobs[j].gpus
    offset, computing = now - begun, jobs[j].forward + jobs[j].backward
    if offset == 0 and now > clock.stretches[j].began:
        phase, end = FORWARD, NEVER
    elif offset < jobs[j].forward or offset == 0:
        phase, end = IN_FORWARD, begun + jobs[j].forward
    elif offset == jobs[j].forward:
        phase, end = BACKWARD, NEVER
    elif offset < computing:
        phase, end = IN_BACKWARD, begun + computing
    else:
        phase, end = WAITING, NEVER
    leader = workers[jobs[j].first_worker].gpu
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        g = workers[w].gpu
        workers[w].phase = phase
        clock.mate[g] = NONE if w + 1 == jobs[j].first_worker + jobs[j].gpus else workers[w + 1].gpu
        if end == NEVER:
            gpus[g].running = NONE
            touch(gpus, state.touched, counts, g)
    if end < NEVER:
        set_time(tree, leader, end)
    if phase == WAITING:
        jobs[j].pending = 0
        if offset == computing:
            want_transfer(jobs, state.ready, counts, rules, j, now)
        else:
            jobs[j].startup_left, jobs[j].claims = rules.startup, 1
            jobs[j].per_byte = jobs[j].alone_per_byte
            reset(jobs, j, jobs[j].size, rules.chunk)
            links, changed, flows = state.links, state.changed, state.flows
            occupy(jobs, state.ports, links, changed, flows, state.moved, counts, j, begun + computing)


@kernel
def _resume_interrupted(state, rules, clock, now):
    """Let stretches go on event by event into which somebody comes at this instant."""
    jobs, workers, gpus, ports, links = state.jobs, state.workers, state.gpus, state.ports, state.links
    counts, stretches = state.counts, clock.stretches
    for i in range(counts[0].touched):
        g = state.touched[i]
        w = gpus[g].running
        if w != NONE and stretches[workers[w].job].passing == 1:
            if _challenged(jobs, workers, gpus, rules, stretches, g, workers[w].job, now):
                _resume(state, rules, clock, workers[w].job, now)
    for i in range(counts[0].placed):
        j = state.placed[i]
        for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
            user = links[ports[p].link].user
            while user != NONE:
                if stretches[ports[user].job].passing == 1:
                    _resume(state, rules, clock, ports[user].job, now)
                user = ports[user].next


@kernel
def run(state, rules, clock, log, most_instants):
    """Let time pass until every job is over, or for so many instants; whether every job is over.

    Also comes back when ``log.levels`` is full; it is called again with room.
    """
    jobs, workers, gpus, ports, links = state.jobs, state.workers, state.gpus, state.ports, state.links
    counts, touched, ready, over, changed = state.counts, state.touched, state.ready, state.over, state.changed
    flows, moved, placed, started = state.flows, state.moved, state.placed, state.started
    candidates, altered, left, queue = state.candidates, state.altered, state.bytes_left, state.queue
    fair = (state.capacity, state.route, state.rate, state.room, state.load)
    tree, mate, group_size, leader, stamp = clock.tree, clock.mate, clock.group_size, clock.leader, clock.stamp
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
                        j, shown, duration = workers[w].job, SHOWN_FORWARD, jobs[workers[w].job].forward
                        if workers[w].phase == IN_BACKWARD:
                            shown, duration = SHOWN_BACKWARD, jobs[j].backward
                        _write(log, hands, shown, g, j, now - duration, now)
                    end_task(jobs, workers, gpus, touched, ready, over, counts, rules, w, now)
                    g = mate[g]
                continue
            j = lane - num_gpus
            if stretches[j].passing == 1:
                _end_stretch(jobs, workers, gpus, touched, over, counts, rules, clock, j, now)
            elif jobs[j].claims == 1 or now == transfer_end(jobs, rules, j):
                if log.wanted:
                    _write_transfer(log, hands, jobs, ports, j, now)
                end_transfer(
                    jobs, workers, gpus, touched, ports, links, changed, flows, over, counts, rules, j, now
                )
            else:
                stop_transfer(jobs, ports, links, changed, flows, moved, counts, rules, j, now)
        memory_freed = counts[0].over > 0
        if memory_freed:
            finish_jobs(state, now)

        # Jobs arrive, and are placed.
        while arrived < num_jobs and jobs[arrivals[arrived]].arrival == now:
            submit(jobs, queue, counts, rules, arrivals[arrived])
            arrived += 1
        if counts[0].queued > 0 and (memory_freed or arrived > hands[0].arrived):
            for i in range(hands[0].passing):
                _catch_up(jobs, rules, stretches, passing[i], now)
            place_queue(state, rules, now)
        hands[0].events += arrived - hands[0].arrived
        hands[0].arrived = arrived
        if hands[0].passing > 0:
            _resume_interrupted(state, rules, clock, now)

        # Transfers start and stop.
        decide_transfers(
            jobs, ports, links, changed, flows, moved, ready, counts, candidates, altered, left, fair, rules, now
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
                    log.opened[j] = jobs[j].since
                elif jobs[j].stage != TRANSFERRING and log.opened[j] != NONE:
                    _write_transfer(log, hands, jobs, ports, j, now)
        counts[0].moved = 0

        # Idle GPUs start to compute.
        start_tasks(jobs, workers, gpus, touched, started, counts)
        num_groups = 0
        for i in range(counts[0].started):
            w = started[i]
            g, j, part = workers[w].gpu, workers[w].job, np.int64(workers[w].phase == IN_BACKWARD)
            if stamp[j, part] == instant:
                first = leader[j, part]
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
            if workers[w].phase == IN_BACKWARD:
                set_time(tree, g, now + jobs[j].backward)
            elif (
                group_size[g] == jobs[j].gpus
                and not log.wanted
                and _may_pass(jobs, workers, gpus, ports, links, rules, j)
            ):
                set_time(tree, num_gpus + j, _begin_stretch(jobs, rules, clock, j, now))
            else:
                set_time(tree, g, now + jobs[j].forward)

        if log.wanted:
            level = 0
            for server in range(rules.num_servers):
                level = max(level, links[server].count)
            if level != hands[0].level:
                log.levels[hands[0].levels, 0], log.levels[hands[0].levels, 1] = now, level
                hands[0].levels += 1
                hands[0].level = level
    return False
