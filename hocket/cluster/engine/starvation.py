"""Starvation: jobs that have queued for long hold GPUs, where others are placed only if over in time. Ours.

Each time that the queue is placed:

* Jobs that arrived so long ago go first, in the order of their arrival, whatever their priority. One that
  fits is placed. One that does not *holds* as many GPUs as it needs: those on which it will fit first, by
  the service left of the jobs there, and of equal ones the first; of several types of GPUs those of the type
  on which it would be over first. GPUs that another job holds are not among them. The first job that finds
  too few ends this; those after it queue as all others do.
* By then, the last of these GPUs has room at a certain time. The earliest such time so far is the job's
  *reservation*: it never moves to later.
* Then all that queue, by priority and in the policy's order. One that does not fit beside what is held may
  have held GPUs as well: its own, and others' where it is over before the reservation if what is left of
  the jobs there comes first, and then all of its own service, transfers included.

So whatever the policy, a job starts in the end: on what the first one holds nobody new is placed after its
reservation, and those there end. It is the reservation of conservative backfill, for jobs that have waited
long instead of all of them (Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime
Estimates in Scheduling the IBM SP2 with Backfilling", 2001).

A job that is placed may still wait for others on its GPUs: who computes first there is the policy's to say.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_memory import memory_once_over, take_memory
from hocket.cluster.engine.gpu_types import service_on
from hocket.cluster.engine.placement.gpu_load import add_up_loads, ascending, load_of
from hocket.cluster.engine.records import CLOSED, NEVER
from hocket.kernel import kernel, lean_kernel


@kernel
def starving_jobs(state, rules, now):
    """Write the queued jobs that arrived long enough ago to ``altered_jobs``, by arrival; how many."""
    jobs, queue, found = state.jobs, state.queue, state.altered_jobs
    n = 0
    for i in range(state.counts[0].queued):
        if now - jobs[queue[i]].arrival >= rules.starvation:
            found[n] = queue[i]
            n += 1
    if n > 1:
        ranks = np.empty(n, np.int64)
        for i in range(n):
            ranks[i] = jobs[found[i]].rank
        found[:n] = found[:n][ascending(ranks)]
    return n


@kernel
def hold(state, rules, j, num_held, now):
    """Let job j, which does not fit, hold the GPUs on which it will first; how many are held then.

    num_held: GPUs that jobs before it hold; as many as that where there are too few others.
    """
    jobs, gpus, sites = state.jobs, state.gpus, state.sites
    memory, num = sites.class_memory[jobs[j].memory_class], jobs[j].gpus
    everywhere = np.arange(rules.num_servers)
    add_up_loads(
        jobs, state.workers, gpus, rules.gpus_per_server, everywhere, sites.gpu_load, sites.server_load
    )
    wait = np.empty(len(gpus), np.int64)
    least = earliest = NEVER
    for kind in range(len(sites.class_fits)):
        if (jobs[j].types >> kind) & 1 == 0:
            continue
        for g in range(len(gpus)):
            wait[g] = NEVER
            if gpus[g].type == kind:
                if gpus[g].free >= memory:
                    wait[g] = 0
                elif memory_once_over(state, rules, g) >= memory:
                    wait[g] = sites.gpu_load[g]
        first = ascending(wait)[:num]
        longest = wait[first[-1]]
        if longest < NEVER and longest + service_on(jobs, sites, j, kind) < earliest:
            earliest, least = longest + service_on(jobs, sites, j, kind), longest
            sites.option[:num] = first
    if least == NEVER:
        return num_held
    jobs[j].reserved = min(jobs[j].reserved, now + least)
    for g in sites.option[:num]:
        take_memory(gpus, sites, g, CLOSED)
        sites.held[num_held], sites.holder[num_held] = g, j
        num_held += 1
    return num_held


@lean_kernel
def release(state, num_held):
    """Let held GPUs be free to all again: who holds them is decided anew the next time."""
    for i in range(num_held):
        take_memory(state.gpus, state.sites, state.sites.held[i], -CLOSED)


@lean_kernel
def _is_open(state, j, i, now):
    """True if job j may have the i-th held GPU: it fits there, and is over before another's reservation."""
    jobs, sites = state.jobs, state.sites
    g = sites.held[i]
    kind = state.gpus[g].type
    if (jobs[j].types >> kind) & 1 == 0:
        return False
    if state.gpus[g].free + CLOSED < sites.class_memory[jobs[j].memory_class]:
        return False
    if sites.holder[i] == j:
        return True
    end = now + jobs[j].launch + service_on(jobs, sites, j, kind)
    # Most are too long at once, and need not be asked for what they find there.
    reserved = jobs[sites.holder[i]].reserved
    return end <= reserved and end + load_of(jobs, state.workers, state.gpus, g) <= reserved


@lean_kernel
def _fits_with_opened(state, j, num_held):
    """True if of some type enough GPUs are open to job j, with those that ``sites.opened`` says."""
    jobs, gpus, sites = state.jobs, state.gpus, state.sites
    for kind in range(len(sites.class_fits)):
        if (jobs[j].types >> kind) & 1 == 0:
            continue
        num = sites.class_fits[kind, jobs[j].memory_class]
        for i in range(num_held):
            if sites.opened[i] == 1 and gpus[sites.held[i]].type == kind:
                num += 1
        if num >= jobs[j].gpus:
            return True
    return False


@lean_kernel
def open_held(state, j, num_held, now):
    """Open the held GPUs that job j may have if it fits with them; whether it does.

    ``sites.opened`` says which; nothing is open where it does not.
    """
    sites = state.sites
    num_open = 0
    for i in range(num_held):
        sites.opened[i] = 1 if _is_open(state, j, i, now) else 0
        num_open += sites.opened[i]
    if num_open == 0 or not _fits_with_opened(state, j, num_held):
        return False
    for i in range(num_held):
        if sites.opened[i] == 1:
            take_memory(state.gpus, sites, sites.held[i], -CLOSED)
    return True


@lean_kernel
def close_opened(state, num_held):
    """Close what was opened for one job."""
    for i in range(num_held):
        if state.sites.opened[i] == 1:
            take_memory(state.gpus, state.sites, state.sites.held[i], CLOSED)
