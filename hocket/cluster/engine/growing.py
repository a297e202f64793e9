"""Growing: jobs with fewer GPUs than they may have take idle ones while nobody queues. Ours.

Each time that the queue has been placed, which it also is when a job has computed for long enough, and
nobody is left in it, for the jobs that run, in the policy's order:

* Jobs may grow that have fewer GPUs than their most, say what a checkpoint takes them, have computed on their
  GPUs for as long as it costs to stop and go on, and have grown fewer than MOST_SHRUNK times more often than
  they have shrunk.
* One that grows keeps its GPUs. Others, of their type, are those that nobody is on: first on the servers
  where it has most GPUs, of equal ones where most are idle; under ``blocks`` within one block. Its user's
  quota has room for all of them.
* Of the numbers that there are it has the one with which the rest of it takes least, alone on these GPUs; of
  equal ones the least.
* It grows if that takes less by more than a checkpoint, a relaunch and an iteration, of which a part is
  under way and is lost: so nobody who is alone on GPUs and links is over later for it.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_numbers import remaining_on, take_number
from hocket.cluster.engine.placement.blocks import block_size
from hocket.cluster.engine.placement.placement_rule import BLOCKS
from hocket.cluster.engine.preemption import place_chosen
from hocket.cluster.engine.records import NONE
from hocket.cluster.engine.resizing import list_resizable
from hocket.kernel import kernel, lean_kernel


@lean_kernel
def _is_idle(state, j, g):
    """True if nobody is on GPU g, and job j may be."""
    gpus, memory = state.gpus, state.sites.class_memory[state.jobs[j].memory_class]
    return gpus[g].type == state.jobs[j].type and gpus[g].jobs == 0 and gpus[g].free >= memory


@lean_kernel
def _bounds(state, rules, j, num):
    """The first GPU and the one behind the last among which job j may have ``num``; 0 and 0: it may not."""
    first, last = state.jobs[j].first_worker, state.jobs[j].first_worker + state.jobs[j].gpus - 1
    begin, end = 0, len(state.gpus)
    if rules.placement == BLOCKS:
        width = block_size(num, rules.gpus_per_server) * rules.gpus_per_server
        begin = state.workers[first].gpu // width * width
        end = min(begin + width, end)
    if state.workers[last].gpu >= end:
        return 0, 0
    return begin, end


@lean_kernel
def _count_idle(state, j, begin, end):
    """The GPUs from ``begin`` to before ``end`` that job j may take."""
    n = 0
    for g in range(begin, end):
        if _is_idle(state, j, g):
            n += 1
    return n


@kernel
def _extend(state, rules, j, num):
    """Write job j's GPUs and idle ones, ``num`` together, to ``sites.chosen``; there are enough."""
    jobs, workers, chosen, size = state.jobs, state.workers, state.sites.chosen, rules.gpus_per_server
    begin, end = _bounds(state, rules, j, num)
    own, idle = np.zeros(rules.num_servers, np.int64), np.zeros(rules.num_servers, np.int64)
    for i in range(jobs[j].gpus):
        chosen[i] = workers[jobs[j].first_worker + i].gpu
        own[chosen[i] // size] += 1
    for g in range(begin, end):
        if _is_idle(state, j, g):
            idle[g // size] += 1
    n = jobs[j].gpus
    while n < num:
        best = begin // size
        for server in range(begin // size, end // size):
            more = idle[server] > 0 and (idle[best] == 0 or own[server] > own[best])
            if more or (own[server] == own[best] and idle[server] > idle[best]):
                best = server
        idle[best] = 0
        for g in range(best * size, (best + 1) * size):
            if n < num and _is_idle(state, j, g):
                chosen[n] = g
                n += 1
    chosen[:num].sort()


@kernel
def _number(state, rules, j):
    """The number of GPUs that job j is to have, or 0: it stays as it is."""
    jobs, user, size = state.jobs, state.users[state.jobs[j].user], rules.gpus_per_server
    computing = jobs[j].forward + jobs[j].backward
    cost = jobs[j].checkpoint + jobs[j].relaunch + jobs[j].per_iteration
    best, least = 0, jobs[j].remaining * jobs[j].per_iteration - cost
    at = state.workers[jobs[j].first_worker].gpu // size * size
    beside = _count_idle(state, j, at, at + size) if jobs[j].num_servers == 0 else 0
    begin = end = idle = 0
    for num in range(jobs[j].gpus + 1, min(jobs[j].most, jobs[j].gpus - user.held + user.quota) + 1):
        remaining = remaining_on(jobs, j, num)
        if remaining * computing >= least:
            continue
        bounds = _bounds(state, rules, j, num)
        if bounds != (begin, end):
            begin, end = bounds
            idle = _count_idle(state, j, begin, end)
        if num - jobs[j].gpus > idle:
            continue
        ticks = remaining * computing
        if num - jobs[j].gpus > beside:
            ticks += remaining * jobs[j].reduce
        if ticks < least:
            best, least = num, ticks
    return best


@kernel
def choose_growing(state, rules, now):
    """The first job that is to have more GPUs, and how many; NONE and 0 if there is none.

    Those that it has then are in ``sites.chosen``.
    """
    if state.counts[0].queued > 0:
        return NONE, 0
    for i in range(list_resizable(state, True, now) - 1, -1, -1):
        j = state.candidates[i]
        num = _number(state, rules, j)
        if num > 0:
            _extend(state, rules, j, num)
            return j, num
    return NONE, 0


@lean_kernel
def go_on_with_more(state, rules, j, num, now):
    """Place job j, which has left its GPUs, on the ``num`` in ``sites.chosen``."""
    state.jobs[j].grown += 1
    take_number(state.jobs, j, num)
    place_chosen(state, rules, j, now)
