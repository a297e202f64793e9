"""A virtual clock for the engine: what starts ends when its duration says so.

The next event is the least of a tree over lanes: one a GPU for tasks that compute, one a job for its
launch, its transfer, or the stretch of iterations that it passes as one event, or jumps over. Tasks of one
job that start together end together, and are one event too. Arrivals and outages come beside that, in order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.cluster.engine.engine import end_launch, end_task, end_transfer, start_tasks, submit
from hocket.cluster.engine.placing import finish_jobs
from hocket.cluster.engine.records import COMPUTING, IN_FORWARD, NEVER, NONE, TRANSFERRING, Ints, Records
from hocket.cluster.engine.resizing import next_stop
from hocket.cluster.engine.state import EngineState
from hocket.cluster.engine.state_parts import compute_state, flow_shares, network_state, transfer_lists
from hocket.cluster.engine.transfer_progress import chunk_end, transfer_end
from hocket.cluster.engine.transfers import decide_transfers, stop_transfer
from hocket.cluster.simulator.fast_forward.fused_tasks import join_tasks, part_challenged
from hocket.cluster.simulator.fast_forward.periodic import JUMP, JumpLimits, jump, land
from hocket.cluster.simulator.fast_forward.same_start import TaskGroups, compute_on, form_groups
from hocket.cluster.simulator.fast_forward.uninterrupted import (
    STRETCH,
    begin_stretch,
    catch_up,
    end_stretch,
    may_pass,
    resume_interrupted,
)
from hocket.cluster.simulator.job_lanes import (
    LANE_COUNTS,
    JobLanes,
    give_lane,
    make_lanes,
    take_lane,
)
from hocket.cluster.simulator.outage_clock import OutageClock, no_outages, pass_outages
from hocket.cluster.simulator.preemption_clock import place_and_resize
from hocket.cluster.simulator.simulation_log import unwritten, write_group, write_level, write_transfer
from hocket.kernel import lean_kernel, look_for_stop
from hocket.sim.loop.lanes import first_lane, set_time

_compute_state, _network_state = lean_kernel(compute_state), lean_kernel(network_state)
_transfer_lists, _flow_shares = lean_kernel(transfer_lists), lean_kernel(flow_shares)

HANDS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "now",
            "turn",  # the instants that there have been at this time
            "jobs_arrived",
            "outage",  # the next of the clock's events of outages
            "next_stop",  # when a job may be preempted or resized that may not be now
            "placements",
            "instants",
            "passing",
            "events",
            "spans",
            "levels",
            "level",
            *LANE_COUNTS,
        )
    ],
    align=True,
)


class VirtualClock(NamedTuple):
    """Events to come; arrays that :func:`run` modifies in place."""

    tree: Ints  # minima over ``leaves`` lanes, GPUs and then jobs, and room behind them
    lanes: JobLanes
    groups: TaskGroups
    arrivals: Ints  # (J,) jobs by arrival
    stretches: Records  # (J,) STRETCH
    jumps: Records  # (J,) JUMP
    passing: Ints  # (J,) jobs that pass a stretch
    forward_until: Ints  # (J,) of joined tasks, when the forward one ends; past for jobs without
    hands: Records  # (1,) HANDS
    outages: OutageClock


def make_clock(state: EngineState) -> VirtualClock:
    """A clock before the first arrival."""
    num_jobs, num_gpus = len(state.jobs), len(state.gpus)
    lanes, tree, leaves = make_lanes(num_gpus, num_jobs)
    hands = np.zeros(1, HANDS)
    hands["leaves"], hands["next_stop"] = leaves, NEVER

    def room(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return VirtualClock(
        tree=tree,
        lanes=lanes,
        groups=TaskGroups(
            mate=room(num_gpus),
            size=room(num_gpus),
            leader=room(num_jobs, 2),
            stamp=room(num_jobs, 2),
            firsts=room(num_gpus),
        ),
        arrivals=np.lexsort([state.jobs["rank"], state.jobs["arrival"]]).astype(np.int64),
        stretches=np.zeros(num_jobs, STRETCH),
        jumps=np.zeros(num_jobs, JUMP),
        passing=room(num_jobs),
        forward_until=np.full(num_jobs, NONE, np.int64),
        hands=hands,
        outages=no_outages(len(state.sites.server_load), num_jobs),
    )


@lean_kernel
def run(state, rules, clock, log, most_instants):
    """Let time pass until every job is over, or for so many instants; whether every job is over.

    Also comes back when ``log.levels`` is full, or ``clock.outages`` are passed; it is called again with
    room, or with more of them.
    """
    compute, network = _compute_state(state), _network_state(state)
    lists, shares = _transfer_lists(state), _flow_shares(state)
    jobs, workers, gpus, segments = state.jobs, state.workers, state.gpus, state.segments
    ports, links, touched_gpus, counts = state.ports, state.links, state.touched_gpus, state.counts
    moved_jobs, placed_jobs, queue = state.moved_jobs, state.placed_jobs, state.queue
    arrivals, hands, groups, lane_of = clock.arrivals, clock.hands, clock.groups, clock.lanes.lane
    tree = clock.tree[: 2 * clock.hands[0].leaves]
    stretches, jumps, passing, outages = clock.stretches, clock.jumps, clock.passing, clock.outages.events
    num_jobs, num_gpus = len(jobs), len(gpus)

    for _ in range(most_instants):
        arrived = hands[0].jobs_arrived
        now = tree[1]
        if arrived < num_jobs:
            now = min(now, jobs[arrivals[arrived]].arrival)
        if now == NEVER and counts[0].queued == 0:
            return True
        now = min(now, outages[hands[0].outage, 0], hands[0].next_stop)
        if now == NEVER:
            return True
        if hands[0].outage == len(outages) - 1 and outages[hands[0].outage, 0] == now:
            return False
        if log.enabled and hands[0].levels == len(log.levels):
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
                if log.enabled:
                    write_group(log, hands, compute, groups.mate, lane, now)
                until = compute_on(compute, rules, groups.mate, lane, now)
                if until == NEVER:
                    end_task(compute, rules, gpus[lane].running, now, groups.mate)
                set_time(tree, lane, until)
                continue
            j = clock.lanes.job[lane - num_gpus]
            set_time(tree, lane, NEVER)
            if jobs[j].stage == COMPUTING and jobs[j].launch > 0:
                end_launch(compute, j, now)
                launched = True
                continue
            if jumps[j].iterations > 0:
                land(jobs, state.batch_bytes, rules, jumps, j)
                set_time(tree, jumps[j].leader, now + segments[jobs[j].first_segment].ticks)
                if jobs[j].stage == TRANSFERRING:
                    set_time(tree, lane, transfer_end(jobs, rules, j))
                continue
            if stretches[j].passing == 1:
                end_stretch(compute, rules, clock, j, now)
            elif jobs[j].claims == 1 or now == transfer_end(jobs, rules, j):
                if log.enabled:
                    write_transfer(log, hands, jobs, ports, j, now)
                end_transfer(compute, network, rules, j, now)
            else:
                stop_transfer(network, rules, j, now)
        memory_freed = counts[0].over > 0
        if memory_freed:
            for i in range(counts[0].over):
                take_lane(clock, state.ended_jobs[i])
            finish_jobs(state, rules, now)
        if outages[hands[0].outage, 0] == now:
            pass_outages(state, rules, clock, log, now)
            memory_freed = True

        # Jobs arrive, and are placed.
        while arrived < num_jobs and jobs[arrivals[arrived]].arrival == now:
            submit(jobs, queue, counts, state.needs, rules, arrivals[arrived])
            arrived += 1
        looks = counts[0].queued > 0 or rules.resizes
        if looks and (memory_freed or arrived > hands[0].jobs_arrived or hands[0].next_stop == now):
            for i in range(hands[0].passing):
                catch_up(jobs, rules, stretches, passing[i], now)
            place_and_resize(state, rules, clock, log, now)
            hands[0].next_stop = next_stop(state, rules, now)
        elif launched or hands[0].next_stop == now:
            hands[0].next_stop = next_stop(state, rules, now)
        hands[0].events += arrived - hands[0].jobs_arrived
        hands[0].jobs_arrived = arrived
        hands[0].placements += counts[0].placed
        for i in range(counts[0].placed):
            j = placed_jobs[i]
            give_lane(clock, num_gpus, j)
            tree = clock.tree[: 2 * clock.hands[0].leaves]
            if jobs[j].launch > 0:
                set_time(tree, lane_of[j], now + jobs[j].launch)
        next_arrival = jobs[arrivals[arrived]].arrival if arrived < num_jobs else NEVER
        # The call costs more than to find out that there is nothing to do, which is nearly always so.
        interrupted, challenged = launched or counts[0].placed > 0, False
        for i in range(counts[0].touched):
            w = gpus[touched_gpus[i]].running
            if w != NONE:
                interrupted |= stretches[workers[w].job].passing == 1
                challenged |= clock.forward_until[workers[w].job] >= now
        if interrupted:
            resume_interrupted(compute, network, placed_jobs, rules, clock, now)
        if challenged:
            part_challenged(compute, clock, now)

        # Transfers start and stop.
        if counts[0].ready > 0 or counts[0].changed > 0:
            decide_transfers(network, lists, shares, rules, now)
        for i in range(counts[0].moved):
            j = moved_jobs[i]
            jobs[j].moved = 0
            end = NEVER
            if jobs[j].stage == TRANSFERRING:
                end = transfer_end(jobs, rules, j) if jobs[j].claims == 1 else chunk_end(jobs, rules, j, now)
            set_time(tree, lane_of[j], end)
            if log.enabled:
                if jobs[j].stage == TRANSFERRING and log.transfer_starts[j] == NONE:
                    log.transfer_starts[j] = now
                elif jobs[j].stage != TRANSFERRING and log.transfer_starts[j] != NONE:
                    write_transfer(log, hands, jobs, ports, j, now)
        counts[0].moved = 0

        # GPUs start to compute, or go on.
        num_groups = 0
        if counts[0].touched > 0:
            start_tasks(jobs, workers, gpus, touched_gpus, state.started_workers, counts)
            num_groups = form_groups(compute, state.started_workers, groups, instant)
        next_come = min(next_arrival, outages[hands[0].outage, 0])
        # Where jobs may grow when others end, none jumps past that.
        limits = JumpLimits(hands[0].placements, now if rules.resizes else next_come)
        for i in range(num_groups):
            g = groups.firsts[i]
            w = gpus[g].running
            j = workers[w].job
            whole = workers[w].phase == IN_FORWARD and groups.size[g] == jobs[j].gpus
            if whole and unwritten(log, hands, jobs, j, now):
                if jobs[j].overlaps == 1:
                    until = jump(compute, network, jumps, limits, j, g, now)
                elif may_pass(jobs, workers, gpus, ports, links, rules, j):
                    until = begin_stretch(jobs, rules, stretches, passing, hands, j, now)
                else:
                    until = NEVER
                if until != NEVER:
                    set_time(tree, lane_of[j], until)
                    continue
                until = join_tasks(jobs, workers, clock.forward_until, j, now)
                if until != NEVER:
                    set_time(tree, g, until)
                    continue
            k = workers[w].phase // 2
            set_time(tree, g, now + segments[jobs[j].first_segment + k].ticks)

        if log.enabled:
            write_level(log, hands, links, rules.num_servers, now)
    return False
