"""Jobs come to GPUs and leave them: memory, residents, and the links their transfers will use."""

from __future__ import annotations

from hocket.cluster.engine.awaited_types import awaits_type
from hocket.cluster.engine.engine import begin_iteration
from hocket.cluster.engine.gpu_memory import take_memory
from hocket.cluster.engine.gpu_numbers import choose_number
from hocket.cluster.engine.gpu_types import fitting_types, take_pace
from hocket.cluster.engine.placement.placement_dispatch import choose_gpus
from hocket.cluster.engine.policies.fair_share import order_by_user
from hocket.cluster.engine.policies.policy_dispatch import key_of
from hocket.cluster.engine.queued_needs import note_fits
from hocket.cluster.engine.records import CLOSED, COMPUTING, FINISHED, NEVER, NONE, QUEUED
from hocket.cluster.engine.starvation import close_opened, hold, open_held, release, starving_jobs
from hocket.cluster.engine.state_parts import compute_state
from hocket.cluster.engine.users import in_quota, keep_quota, release_quotas, take_gpus
from hocket.cluster.engine.wait_lists import wait_at
from hocket.kernel import lean_kernel

_compute_state = lean_kernel(compute_state)


@lean_kernel
def _disconnect(jobs, ports, links, j):
    """Take job j off the users of its links, and off those that wait for one."""
    wait_at(jobs, links, j, NONE)
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
        link = ports[p].link
        if links[link].user == p:
            links[link].user = ports[p].next
        else:
            other = links[link].user
            while ports[other].next != p:
                other = ports[other].next
            ports[other].next = ports[p].next


@lean_kernel
def take_room(gpus, sites, rules, g, memory_class, sign):
    """Let a job more be on GPU g, or one less if ``sign`` is negative, with its memory."""
    before = gpus[g].jobs
    gpus[g].jobs += sign
    closed = CLOSED if max(before, gpus[g].jobs) == rules.jobs_per_gpu else 0
    take_memory(gpus, sites, g, sign * (sites.class_memory[memory_class] + closed))


@lean_kernel
def release_places(state, rules, j, now):
    """Let go of job j: its memory is free, its GPUs and links are no longer its own."""
    jobs, workers, gpus, sites = state.jobs, state.workers, state.gpus, state.sites
    take_gpus(state.users, jobs[j].user, -jobs[j].gpus, rules, now)
    _disconnect(jobs, state.ports, state.links, j)
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        g = workers[w].gpu
        take_room(gpus, sites, rules, g, jobs[j].memory_class, -1)
        if gpus[g].resident == w:
            gpus[g].resident = workers[w].next
        else:
            other = gpus[g].resident
            while workers[other].next != w:
                other = workers[other].next
            workers[other].next = workers[w].next


@lean_kernel
def finish_jobs(state, rules, now):
    """Let go of the jobs that are over."""
    jobs, counts = state.jobs, state.counts
    for i in range(counts[0].over):
        j = state.ended_jobs[i]
        jobs[j].stage, jobs[j].finish = FINISHED, now
        release_places(state, rules, j, now)
    counts[0].finished += counts[0].over
    counts[0].over = 0


@lean_kernel
def _add_port(jobs, ports, links, route, rules, j, link):
    i = jobs[j].num_hops
    p = jobs[j].first_port + i
    ports[p].job, ports[p].link, ports[p].next = j, link, links[link].user
    links[link].user = p
    jobs[j].num_hops += 1
    if rules.max_min:
        route[j, i] = link


@lean_kernel
def _connect(jobs, ports, links, sites, rules, j):
    """Give a job on several servers its ports: the servers', then the uplinks' of its racks if several."""
    rack, capacity, route, chosen = sites.rack, sites.capacity, sites.route, sites.chosen[: jobs[j].gpus]
    num_servers = len(rack)
    if chosen[0] // rules.gpus_per_server == chosen[-1] // rules.gpus_per_server:
        return
    at = NONE
    for g in chosen:
        if g // rules.gpus_per_server != at:
            at = g // rules.gpus_per_server
            _add_port(jobs, ports, links, route, rules, j, at)
    jobs[j].num_servers = jobs[j].num_hops
    jobs[j].per_iteration += jobs[j].reduce
    if jobs[j].num_batches > 0:
        jobs[j].overlaps = 1
        jobs[j].first_segment += jobs[j].num_segments
        jobs[j].num_segments = jobs[j].overlapped_segments
        jobs[j].batches_arrived = jobs[j].batches_complete = jobs[j].num_batches
    first, last = rack[chosen[0] // rules.gpus_per_server], rack[chosen[-1] // rules.gpus_per_server]
    if len(capacity) > num_servers and first != last:
        at = NONE
        for g in chosen:
            if rack[g // rules.gpus_per_server] != at:
                at = rack[g // rules.gpus_per_server]
                _add_port(jobs, ports, links, route, rules, j, num_servers + at)
    jobs[j].per_byte = jobs[j].alone_per_byte = rules.per_byte
    if rules.max_min:
        for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_hops):
            jobs[j].alone_per_byte = max(jobs[j].alone_per_byte, 1.0 / capacity[ports[p].link])


@lean_kernel
def place_on(state, rules, j, now):
    """Give job j the GPUs in ``sites.chosen``, ascending, of one type; it begins, once it is launched.

    It is launched when it has saved, if it was preempted itself, and those have that were preempted there.
    """
    jobs, workers, gpus, sites = state.jobs, state.workers, state.gpus, state.sites
    chosen, vacated = sites.chosen, max(now, jobs[j].saved_at)
    take_pace(jobs, sites, j, gpus[chosen[0]].type)
    for i in range(jobs[j].gpus):
        w, g = jobs[j].first_worker + i, chosen[i]
        workers[w].gpu, workers[w].next = g, gpus[g].resident
        gpus[g].resident = w
        vacated = max(vacated, gpus[g].vacated)
        take_room(gpus, sites, rules, g, jobs[j].memory_class, 1)
    _connect(jobs, state.ports, state.links, sites, rules, j)
    jobs[j].key = key_of(jobs, j, jobs[j].remaining, rules.order)
    take_gpus(state.users, jobs[j].user, jobs[j].gpus, rules, now)
    jobs[j].start = now
    jobs[j].stage = COMPUTING
    jobs[j].launch += vacated - now
    jobs[j].launched = jobs[j].launch
    if jobs[j].launch == 0:
        begin_iteration(_compute_state(state), j, now)


@lean_kernel
def list_placed(state, j):
    """List job j with those that were placed at this instant."""
    state.placed_jobs[state.counts[0].placed] = j
    state.counts[0].placed += 1


@lean_kernel
def _fits(state, j):
    """True if job j fits on GPUs that are open to it."""
    return fitting_types(state.jobs, state.sites, j) != 0


@lean_kernel
def _place(state, rules, j, now, may_have_more):
    """Place job j, for which GPUs enough have room, and list it with those that were; True if it was.

    may_have_more: than the fewest that it may have.
    """
    if may_have_more and state.jobs[j].most > state.jobs[j].fewest:
        found = choose_number(state, rules, j, now)
    else:
        found = choose_gpus(state, rules, j, now)
    if found == 0:
        return False
    place_on(state, rules, j, now)
    list_placed(state, j)
    state.needs.queued[state.needs.of_job[j]] -= 1
    return True


@lean_kernel
def _place_starving(state, rules, now):
    """Place jobs that have queued for long, or let them hold GPUs; how many of these there are then."""
    num_held = 0
    for i in range(starving_jobs(state, rules, now)):
        j = state.altered_jobs[i]
        if in_quota(state.jobs, state.users, j):
            if _fits(state, j) and _place(state, rules, j, now, True):
                continue
            before = num_held
            num_held = hold(state, rules, j, before, now)
            if num_held == before:
                break
        keep_quota(state.jobs, state.users, j)
    return num_held


@lean_kernel
def _leave_queue(jobs, queue, counts, end):
    """Take those off the queue that are placed, all of them among its first ``end``."""
    kept = 0
    for i in range(end):
        if jobs[queue[i]].stage == QUEUED:
            queue[kept] = queue[i]
            kept += 1
    for i in range(end, len(queue)):
        queue[kept] = queue[i]
        kept += 1
    counts[0].queued = kept


@lean_kernel
def order_queue(state, rules, now):
    """Write the jobs that queue to ``candidates``, in the order in which they are to be placed."""
    queue = state.queue[: state.counts[0].queued]
    if rules.by_user:
        order_by_user(state.jobs, state.users, queue, state.candidates, rules.half_life, now)
        return
    for i in range(len(queue)):
        state.candidates[i] = queue[i]


@lean_kernel
def _place_in_order(state, rules, num_held, now):
    """Place the queued jobs that fit, in order; how many were looked at: as long as one may fit."""
    jobs, users, sites, num_queued = state.jobs, state.users, state.sites, state.counts[0].queued
    needs, order = state.needs, state.candidates if rules.by_user else state.queue
    looking = note_fits(needs, sites.class_fits) or num_held > 0
    if looking and rules.by_user:
        order_queue(state, rules, now)
    if rules.wait_for_faster:
        for g in range(len(sites.promised)):
            sites.promised[g] = 0
    # Elsewhere nothing comes of a job that does not fit on what is open to all.
    passes_over = rules.passes_over and not rules.wait_for_faster and num_held == 0
    i = 0
    while looking and i < num_queued:
        j = order[i]
        i += 1
        if (passes_over and needs.fits[needs.of_job[j]] == 0) or jobs[j].stage != QUEUED:
            continue
        allowed = in_quota(jobs, users, j)
        fitting = fitting_types(jobs, sites, j) if allowed else 0
        waits = allowed and rules.wait_for_faster and awaits_type(state, rules, j, fitting, now)
        waits = waits and fitting != 0
        placed = fitting != 0 and not waits and _place(state, rules, j, now, True)
        if allowed and not placed and not waits and num_held > 0 and open_held(state, j, num_held, now):
            placed = _place(state, rules, j, now, False)
            close_opened(state, num_held)
        if placed:
            looking = note_fits(needs, sites.class_fits) or num_held > 0
        else:
            looking = rules.passes_over or not allowed
    return i


@lean_kernel
def place_queue(state, rules, now):
    """Place the queued jobs that fit, in order; adds to ``placed_jobs``.

    Returns the number of GPUs held for jobs that queued for long, closed to others until this ends.
    """
    queue, counts = state.queue[: state.counts[0].queued], state.counts
    placed_before = counts[0].placed
    num_held = _place_starving(state, rules, now) if rules.starvation < NEVER else 0
    num_looked_at = _place_in_order(state, rules, num_held, now)
    if counts[0].placed > placed_before:
        anywhere = rules.by_user or rules.starvation < NEVER
        _leave_queue(state.jobs, queue, counts, len(queue) if anywhere else num_looked_at)
    return num_held


@lean_kernel
def end_placing(state, rules, num_held):
    """Let nothing be kept for anybody: who holds what is decided anew the next time."""
    release(state, num_held)
    if rules.starvation < NEVER:
        release_quotas(state.users)
