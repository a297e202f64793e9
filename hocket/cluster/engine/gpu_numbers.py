"""Numbers of GPUs: how many a job gets that may have fewer than ``gpus``, down to ``gpus_min``. Ours.

The number is chosen when the job is placed, and stays until it leaves its GPUs. Where jobs are resized that
may be to go on with another: :mod:`hocket.cluster.engine.shrinking`, :mod:`hocket.cluster.engine.growing`.
It never waits for more than
``gpus_min``, which is what it queues for, holds GPUs for, and has to find room for in its user's quota. When
it is placed,

* as many GPUs are left as the jobs need at least which queue behind or before it, could be placed now or have
  queued for long, and run on a type of GPU that it runs on: of each user no more than its quota has room for;
* of the numbers from ``gpus_min`` to ``gpus`` that are open beside these and within its user's quota, it has
  the one with which it would be over first, alone on the GPUs that the placement has for so many; the least
  of equal ones.

So it takes more than the least only of what nobody waits for, and only where that pays: on several servers
there is a transfer in each of its iterations. On GPUs that others hold it has the least.

Work is counted in iterations of one GPU: ``gpus`` times ``iterations`` are a job's. With n GPUs it has an
n-th of that, rounded up, and each iteration computes as long as with any number: each GPU's batch stays.
Where it goes on with another number, what it has kept is counted in iterations of these, rounded down.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_types import fitting_types
from hocket.cluster.engine.placement.placement_dispatch import choose_gpus
from hocket.cluster.engine.records import NEVER, QUEUED
from hocket.cluster.engine.users import in_quota
from hocket.kernel import kernel, lean_kernel


@lean_kernel
def take_number(jobs, j, num):
    """Let job j, which is not placed, have so many GPUs, and its work be iterations of these."""
    jobs[j].gpus = num
    jobs[j].iterations = -(-jobs[j].work // num)
    jobs[j].kept = jobs[j].work_kept // num
    jobs[j].remaining = jobs[j].iterations - jobs[j].kept


@lean_kernel
def remaining_on(jobs, j, num):
    """The iterations that job j, which is placed, would have left with so many GPUs."""
    kept = max(jobs[j].work_kept, (jobs[j].iterations - jobs[j].remaining) * jobs[j].gpus)
    return -(-jobs[j].work // num) - kept // num


@lean_kernel
def requeue_work(jobs, j, kept):
    """Let job j, which leaves its GPUs, have kept so many iterations, and queue for its fewest GPUs."""
    jobs[j].work_kept = max(jobs[j].work_kept, kept * jobs[j].gpus)
    take_number(jobs, j, jobs[j].fewest)


@kernel
def _needed_by_others(state, rules, j, now):
    """The GPUs that others need at least which queue and may have them soon, on types that job j runs on."""
    jobs, users = state.jobs, state.users
    needed = np.zeros(len(users), np.int64)
    for i in range(state.counts[0].queued):
        other = state.queue[i]
        if other == j or jobs[other].stage != QUEUED or jobs[other].types & jobs[j].types == 0:
            continue
        starving = now - jobs[other].arrival >= rules.starvation
        if in_quota(jobs, users, other) and (starving or fitting_types(jobs, state.sites, other) != 0):
            needed[jobs[other].user] += jobs[other].fewest
    total = 0
    for u in range(len(users)):
        total += min(needed[u], users[u].quota - users[u].held)
    return total


@kernel
def _most_gpus(state, rules, j, now):
    """The most GPUs that job j, which fits, may have now."""
    jobs, sites, user = state.jobs, state.sites, state.users[state.jobs[j].user]
    most_open = 0
    for kind in range(len(sites.class_fits)):
        if (jobs[j].types >> kind) & 1:
            most_open = max(most_open, sites.class_fits[kind, jobs[j].memory_class])
    most = min(jobs[j].most, most_open, user.quota - user.held)
    if most > jobs[j].fewest:
        most = min(most, most_open - _needed_by_others(state, rules, j, now))
    return max(most, jobs[j].fewest)


@kernel
def _computing(state, j):
    """Ticks that job j computes an iteration on the type that suits it best."""
    least = NEVER
    for kind in range(len(state.sites.class_fits)):
        if (state.jobs[j].types >> kind) & 1:
            pace = state.sites.pace[j, kind]
            least = min(least, pace.forward + pace.backward)
    return least


@kernel
def _alone(state, rules, j):
    """Ticks that the iterations of job j take alone on its GPUs, in ``sites.chosen``, ascending."""
    chosen, per_server = state.sites.chosen, rules.gpus_per_server
    pace = state.sites.pace[j, state.gpus[chosen[0]].type]
    ticks = pace.forward + pace.backward
    if chosen[0] // per_server != chosen[state.jobs[j].gpus - 1] // per_server:
        ticks += pace.reduce
    return state.jobs[j].remaining * ticks


@kernel
def choose_number(state, rules, j, now):
    """Let job j, which fits, have the number of GPUs that suits it, and write these to ``sites.chosen``.

    Returns the number, 0 if it waits for others.
    """
    jobs = state.jobs
    best, earliest, at_best = 0, NEVER, _computing(state, j)
    num = _most_gpus(state, rules, j, now)
    while num >= jobs[j].fewest:
        take_number(jobs, j, num)
        if jobs[j].remaining * at_best > earliest:
            break  # fewer have more iterations
        if choose_gpus(state, rules, j, now) > 0:
            ticks = _alone(state, rules, j)
            if ticks <= earliest:
                best, earliest = num, ticks
        num -= 1
    take_number(jobs, j, max(best, jobs[j].fewest))
    return choose_gpus(state, rules, j, now) if best > 0 else 0
