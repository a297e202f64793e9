"""Preemption: jobs that leave their GPUs for one ahead of them in the queue, by the policy's rule.

``choose_preemption`` finds the first such job, ``preempt`` lets the others queue again, and
``place_chosen`` gives it their GPUs at once. A job that is placed on these is launched when they have saved.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_types import fitting_types, service_on
from hocket.cluster.engine.interruptions import interrupt
from hocket.cluster.engine.placement.blocks import block_size
from hocket.cluster.engine.placement.gpu_load import ascending
from hocket.cluster.engine.placement.placement_dispatch import choose_gpus
from hocket.cluster.engine.placement.placement_rule import BLOCKS
from hocket.cluster.engine.placing import list_placed, place_on, take_room
from hocket.cluster.engine.policies.policy_dispatch import list_last_first, queues_before
from hocket.cluster.engine.policies.srsf_requeue import is_worthwhile, may_leave
from hocket.cluster.engine.records import CLOSED, NEVER, NONE
from hocket.cluster.engine.users import in_quota
from hocket.kernel import kernel, lean_kernel


@kernel
def _may_leave(state, rules, now):
    """Write the placed jobs that may be preempted to ``candidates``, the last in order first; how many."""
    jobs, workers, found = state.jobs, state.workers, state.candidates
    n = 0
    for g in range(len(state.gpus)):
        w = state.gpus[g].resident
        while w != NONE:
            j = workers[w].job
            if w == jobs[j].first_worker and may_leave(jobs, rules, j, now):
                list_last_first(jobs, found, n, j)
                n += 1
            w = workers[w].next
    return n


@lean_kernel
def _take_all(state, rules, j, sign):
    """Take the room that job j has on its GPUs, or give it back if ``sign`` is negative."""
    jobs, workers = state.jobs, state.workers
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        take_room(state.gpus, state.sites, rules, workers[w].gpu, jobs[j].memory_class, sign)


@lean_kernel
def _is_on(state, j, g):
    """True if job j is on GPU g."""
    w = state.gpus[g].resident
    while w != NONE and state.workers[w].job != j:
        w = state.workers[w].next
    return w != NONE


@kernel
def _choose_with(state, rules, j, num, now):
    """Choose GPUs for job j as if the first ``num`` candidates were over; how many."""
    for i in range(num):
        _take_all(state, rules, state.candidates[i], -1)
    found = 0
    if fitting_types(state.jobs, state.sites, j) != 0:
        found = choose_gpus(state, rules, j, now)
    for i in range(num):
        _take_all(state, rules, state.candidates[i], 1)
    return found


@kernel
def _list_leaving(state, rules, j, num):
    """List in ``preempted_jobs`` those of the first ``num`` candidates that are in job j's way; how many."""
    jobs, sites, leaving = state.jobs, state.sites, state.preempted_jobs
    memory = sites.class_memory[jobs[j].memory_class]
    n = 0
    for g in sites.chosen[: jobs[j].gpus]:
        for i in range(num):
            if state.gpus[g].free >= memory:
                break
            other = state.candidates[i]
            gone = False
            for k in range(n):
                gone |= leaving[k] == other
            if not gone and _is_on(state, other, g):
                _take_all(state, rules, other, -1)
                leaving[n] = other
                n += 1
    for i in range(n):
        _take_all(state, rules, leaving[i], 1)
    return n


@lean_kernel
def _wait_on(state, rules, g, memory):
    """Ticks until GPU g has so many bytes free, or NEVER; jobs there end one by one, the shortest first."""
    jobs, workers, sites = state.jobs, state.workers, state.sites
    room, wait, gone, last_left = state.gpus[g].free, 0, NONE, -1
    full = state.gpus[g].jobs == rules.jobs_per_gpu
    if full:
        room += CLOSED
    while full or room < memory:
        first, least = NONE, NEVER
        w = state.gpus[g].resident
        while w != NONE:
            left = jobs[workers[w].job].remaining * jobs[workers[w].job].per_iteration
            later = left > last_left or (left == last_left and w > gone)
            if later and (first == NONE or left < least or (left == least and w < first)):
                first, least = w, left
            w = workers[w].next
        if first == NONE:
            return NEVER
        gone, last_left, full = first, least, False
        wait += least
        room += sites.class_memory[jobs[workers[first].job].memory_class]
    return wait


@kernel
def wait_for_room(state, rules, j):
    """Ticks until enough GPUs have room for job j, in one block if it is to have one; NEVER: none will."""
    jobs, gpus, sites = state.jobs, state.gpus, state.sites
    memory, num, size = sites.class_memory[jobs[j].memory_class], jobs[j].gpus, len(gpus)
    if rules.placement == BLOCKS:
        size = block_size(num, rules.gpus_per_server) * rules.gpus_per_server
    least = NEVER
    for kind in range(len(sites.class_fits)):
        if (jobs[j].types >> kind) & 1 == 0:
            continue
        for first in range(0, len(gpus), size):
            last = min(first + size, len(gpus))
            waits = np.full(last - first, NEVER)
            for g in range(first, last):
                if gpus[g].type == kind:
                    waits[g - first] = _wait_on(state, rules, g, memory)
            if len(waits) >= num:
                least = min(least, waits[ascending(waits)[num - 1]])
    return least


@kernel
def choose_preemption(state, rules, now):
    """The first queued job for which others are to leave, or NONE.

    Its GPUs are in ``sites.chosen``, and who leaves is in ``preempted_jobs``.
    """
    jobs, sites, counts = state.jobs, state.sites, state.counts
    num_candidates = _may_leave(state, rules, now)
    for q in range(counts[0].queued):
        j = state.queue[q]
        num = 0
        while num < num_candidates and queues_before(jobs, j, state.candidates[num]):
            num += 1
        if num == 0:
            break
        starving = now - jobs[j].arrival >= rules.starvation
        if starving or not in_quota(jobs, state.users, j) or _choose_with(state, rules, j, num, now) == 0:
            continue
        n = _list_leaving(state, rules, j, num)
        save = 0
        for i in range(n):
            save = max(save, jobs[state.preempted_jobs[i]].checkpoint)
        stay = jobs[j].launch + service_on(jobs, sites, j, state.gpus[sites.chosen[0]].type)
        if is_worthwhile(jobs, state.preempted_jobs[:n], wait_for_room(state, rules, j), save, stay):
            counts[0].preempted = n
            return j
    counts[0].preempted = 0
    return NONE


@lean_kernel
def saving_ticks(state):
    """Ticks for which the jobs in ``preempted_jobs`` save what they have."""
    save = 0
    for i in range(state.counts[0].preempted):
        save = max(save, state.jobs[state.preempted_jobs[i]].checkpoint)
    return save


@lean_kernel
def preempt(state, rules, j, launch, saved_at, now):
    """Let job j, which is placed, queue again; as :func:`save_and_leave`."""
    state.jobs[j].preemptions += 1
    save_and_leave(state, rules, j, launch, saved_at, now)


@lean_kernel
def save_and_leave(state, rules, j, launch, saved_at, now):
    """Let job j, which is placed, queue with all its complete iterations, and ``launch`` ahead.

    Until ``saved_at`` nobody is launched on its GPUs.
    """
    jobs, workers, gpus = state.jobs, state.workers, state.gpus
    jobs[j].saved_at = saved_at
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        gpus[workers[w].gpu].vacated = max(gpus[workers[w].gpu].vacated, saved_at)
    interrupt(state, rules, j, jobs[j].iterations - jobs[j].remaining, launch, now)


@lean_kernel
def place_chosen(state, rules, j, now):
    """Give job j, which queues, the GPUs in ``sites.chosen``."""
    queue, counts = state.queue, state.counts
    at = 0
    while queue[at] != j:
        at += 1
    counts[0].queued -= 1
    state.needs.queued[state.needs.of_job[j]] -= 1
    for i in range(at, counts[0].queued):
        queue[i] = queue[i + 1]
    place_on(state, rules, j, now)
    list_placed(state, j)
