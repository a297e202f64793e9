"""Limits of resizing: which jobs may have another number of GPUs while they run, from when, and how often.

:mod:`hocket.cluster.engine.shrinking` and :mod:`hocket.cluster.engine.growing` say when they do.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.policy_dispatch import list_last_first
from hocket.cluster.engine.policies.srsf_requeue import has_paid_off, may_leave, pays_off_at
from hocket.cluster.engine.records import NEVER, NONE
from hocket.kernel import lean_kernel

MOST_SHRUNK = 5
"""Times that a job goes on with fewer GPUs; with more it does at most so many times more often than that."""
MOST_RESIZES = 3 * MOST_SHRUNK


@lean_kernel
def _may_resize(jobs, j, grows, now):
    """True if job j, which is placed, may have more GPUs, or fewer if not ``grows``."""
    if grows:
        within = jobs[j].gpus < jobs[j].most and jobs[j].grown < jobs[j].shrunk + MOST_SHRUNK
    else:
        within = jobs[j].gpus > jobs[j].fewest and jobs[j].shrunk < MOST_SHRUNK
    return within and has_paid_off(jobs, j, now)


@lean_kernel
def list_resizable(state, grows, now):
    """Write jobs that may have more GPUs, or fewer, to ``candidates``, the last in order first; how many."""
    jobs, workers, n = state.jobs, state.workers, 0
    for g in range(len(state.gpus)):
        w = state.gpus[g].resident
        while w != NONE:
            j = workers[w].job
            if w == jobs[j].first_worker and _may_resize(jobs, j, grows, now):
                list_last_first(jobs, state.candidates, n, j)
                n += 1
            w = workers[w].next
    return n


@lean_kernel
def next_stop(state, rules, now):
    """The next tick at which a job has been on its GPUs for long enough to leave them; NEVER: none will.

    It may do so for one that queues, or to take more of them where none does.
    """
    jobs, workers, least = state.jobs, state.workers, NEVER
    if not (rules.resizes or rules.requeues):
        return least
    grows = state.counts[0].queued == 0
    for g in range(len(state.gpus)):
        w = state.gpus[g].resident
        while w != NONE:
            j = workers[w].job
            at = pays_off_at(jobs, j)
            if w == jobs[j].first_worker and now < at < least:
                resized = rules.resizes and _may_resize(jobs, j, grows, at)
                preempted = rules.requeues and not grows and may_leave(jobs, rules, j, at)
                if resized or preempted:
                    least = at
            w = workers[w].next
    return least
