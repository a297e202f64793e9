"""Shrinking: jobs with more GPUs than their fewest give some to the first job that waits. Ours.

Each time that the queue has been placed, which it also is when a job has computed for long enough, for the
first job in it that its user's quota has room for (where jobs hold GPUs because they have queued for long,
the first of these):

* Jobs may give GPUs that have a range, more than their fewest of it, say what a checkpoint takes them, have
  computed on these GPUs for as long as it costs to stop and go on, and have shrunk fewer than MOST_SHRUNK
  times. It does not matter whether they go before it: what they have beyond their fewest they had of what
  nobody waited for.
* One after another, the last in the policy's order first, offers what it has beyond its fewest, and would
  keep the GPUs of the servers where it has most of them, until the placement finds GPUs for who waits.
  Of those that offered, who has a GPU in its way there gives that one, and keeps all others.
* They do so where it gains more than they lose together:

      wait - save  >  the sum over those that give of: save + relaunch + min(stay, slower)

  wait, save, relaunch: as in preemption; stay: its launch and its service; slower: what the rest of theirs
  takes longer with the GPUs that stay, alone on them. A job that is slower for longer than the other one
  stays may have GPUs again by then.

Who gives saves a checkpoint, and goes on at once on the GPUs that it keeps, after a relaunch; the one that
waited is launched when they have saved.
"""

from __future__ import annotations

from hocket.cluster.engine.gpu_memory import take_memory
from hocket.cluster.engine.gpu_numbers import remaining_on, take_number
from hocket.cluster.engine.gpu_types import fitting_types, service_on
from hocket.cluster.engine.placement.placement_dispatch import choose_gpus
from hocket.cluster.engine.placing import order_queue, take_room
from hocket.cluster.engine.preemption import place_chosen, wait_for_room
from hocket.cluster.engine.records import CLOSED, NONE, QUEUED
from hocket.cluster.engine.resizing import list_resizable
from hocket.cluster.engine.users import in_quota
from hocket.kernel import kernel, lean_kernel

# Of a worker in ``offers``.
_STAYS, _OFFERED, _LEAVES = range(3)


@kernel
def _first_waiting(state, rules, num_held, now):
    """The job for which others may shrink, or NONE; num_held: GPUs that jobs hold."""
    jobs = state.jobs
    for i in range(num_held):
        if jobs[state.sites.holder[i]].stage == QUEUED:
            return state.sites.holder[i]
    order_queue(state, rules, now)
    for i in range(state.counts[0].queued):
        if in_quota(jobs, state.users, state.candidates[i]):
            return state.candidates[i]
    return NONE


@lean_kernel
def _open_own(state, q, num_held, sign):
    """Open the GPUs that job q holds, or close them again if ``sign`` is positive."""
    for i in range(num_held):
        if state.sites.holder[i] == q:
            take_memory(state.gpus, state.sites, state.sites.held[i], sign * CLOSED)


@lean_kernel
def _offer(state, rules, j):
    """Let job j offer all but its fewest GPUs; those stay of which it has most on a server."""
    jobs, workers, offers = state.jobs, state.workers, state.offers
    first, end = jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus
    for w in range(first, first + jobs[j].most):
        offers[w] = _OFFERED if w < end else _LEAVES
    left = jobs[j].fewest
    while left > 0:
        best, most, w = NONE, 0, first
        while w < end:
            server, last = workers[w].gpu // rules.gpus_per_server, w
            while last < end and workers[last].gpu // rules.gpus_per_server == server:
                last += 1
            if offers[w] == _OFFERED and last - w > most:
                best, most = w, last - w
            w = last
        for kept in range(best, best + min(left, most)):
            offers[kept] = _STAYS
        left -= min(left, most)


@lean_kernel
def _take_offered(state, rules, j, offered, sign):
    """Take the room of job j's workers that are ``offered``, or give it back if ``sign`` is negative."""
    jobs, workers = state.jobs, state.workers
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        if state.offers[w] == offered:
            take_room(state.gpus, state.sites, rules, workers[w].gpu, jobs[j].memory_class, sign)


@kernel
def _choose_of_offers(state, rules, q, num, now):
    """Choose GPUs for job q with as few offers as it needs, of ``num`` candidates; how many, 0 if none do."""
    offering, found = 0, False
    while offering < num and not found:
        j = state.candidates[offering]
        offering += 1
        _offer(state, rules, j)
        _take_offered(state, rules, j, _OFFERED, -1)
        if fitting_types(state.jobs, state.sites, q) != 0:
            found = choose_gpus(state, rules, q, now) > 0
    for i in range(offering):
        _take_offered(state, rules, state.candidates[i], _OFFERED, 1)
    return offering if found else 0


@lean_kernel
def _offered_worker(state, j, g):
    """The worker of job j on GPU g, if that is offered, or NONE."""
    w = state.gpus[g].resident
    while w != NONE and state.workers[w].job != j:
        w = state.workers[w].next
    return w if w != NONE and state.offers[w] == _OFFERED else NONE


@kernel
def _list_leaving(state, rules, q, num):
    """List in ``preempted_jobs`` who of the first ``num`` candidates has a GPU in job q's way; how many."""
    sites, giving, n = state.sites, state.preempted_jobs, 0
    memory = sites.class_memory[state.jobs[q].memory_class]
    for g in sites.chosen[: state.jobs[q].gpus]:
        for i in range(num):
            if state.gpus[g].free >= memory:
                break
            j = state.candidates[i]
            w = _offered_worker(state, j, g)
            if w == NONE:
                continue
            state.offers[w] = _LEAVES
            take_room(state.gpus, sites, rules, g, state.jobs[j].memory_class, -1)
            listed = False
            for k in range(n):
                listed |= giving[k] == j
            if not listed:
                giving[n] = j
                n += 1
    for i in range(n):
        _take_offered(state, rules, giving[i], _LEAVES, 1)
    return n


@lean_kernel
def _keep(state, j):
    """Write the GPUs that job j keeps to ``sites.chosen``, ascending; how many.

    Its workers are where they were, whether it has left or not.
    """
    n = 0
    for w in range(state.jobs[j].first_worker, state.jobs[j].first_worker + state.jobs[j].most):
        if state.offers[w] != _LEAVES:
            state.sites.chosen[n] = state.workers[w].gpu
            n += 1
    return n


@lean_kernel
def _slower(state, rules, j):
    """Ticks that the rest of job j takes longer with the GPUs that it keeps."""
    jobs, workers = state.jobs, state.workers
    num, first, last = 0, NONE, NONE
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        if state.offers[w] != _LEAVES:
            last = workers[w].gpu // rules.gpus_per_server
            first = last if num == 0 else first
            num += 1
    ticks = jobs[j].forward + jobs[j].backward
    if first != last:
        ticks += jobs[j].reduce
    return remaining_on(jobs, j, num) * ticks - jobs[j].remaining * jobs[j].per_iteration


@kernel
def choose_shrinking(state, rules, num_held, now):
    """The first job that waits, if others are to give GPUs to it, or NONE; num_held: GPUs that jobs hold.

    Its GPUs are in ``sites.chosen``, and who gives is in ``preempted_jobs``.
    """
    jobs, sites, counts = state.jobs, state.sites, state.counts
    counts[0].preempted = 0
    q = _first_waiting(state, rules, num_held, now)
    num = list_resizable(state, False, now)
    if q == NONE or num == 0:
        return NONE
    _open_own(state, q, num_held, -1)
    offering = _choose_of_offers(state, rules, q, num, now)
    n = _list_leaving(state, rules, q, offering) if offering > 0 else 0
    wait = wait_for_room(state, rules, q) if n > 0 else 0
    _open_own(state, q, num_held, 1)
    if n == 0:
        return NONE
    counts[0].preempted = n
    save = lost = 0
    stay = jobs[q].launch + service_on(jobs, sites, q, state.gpus[sites.chosen[0]].type)
    for i in range(n):
        j = state.preempted_jobs[i]
        save = max(save, jobs[j].checkpoint)
        lost += jobs[j].relaunch + min(stay, _slower(state, rules, j))
    if wait - save > lost + n * save:
        return q
    counts[0].preempted = 0
    return NONE


@lean_kernel
def go_on_with_fewer(state, rules, j, now):
    """Place job j, which has left its GPUs, on those that it keeps."""
    state.jobs[j].shrunk += 1
    take_number(state.jobs, j, _keep(state, j))
    place_chosen(state, rules, j, now)
