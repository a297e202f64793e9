"""SRSF that preempts jobs: they save, leave their GPUs to a job ahead of them, and queue again. Ours.

Preemptive SRSF is what Tiresias compares itself with, as jobs are known in advance there (Gu et al., NSDI
2019); Slurm requeues preempted jobs (``PreemptMode=REQUEUE``). Here a preemption has to be worth its
checkpoint. Each time that the queue has been placed, which it also is when a job has computed for long
enough to be preempted, for the queued jobs in order: job j may displace jobs that go behind it (a lower
priority; of the same one more service left) and

* say what a checkpoint takes them (``checkpoint_s``),
* have had their GPUs, and computed there, for as long as a preemption costs them,
* have been preempted fewer than MOST_PREEMPTIONS times,
* have not arrived so long ago that they count as starving.

Its placement chooses GPUs for j as if all of these were over, and those of them leave that are in j's way
there, from the last one in the order on. They do so where j gains more than they lose together:

    wait - save  >  the sum over those that leave of: save + j's launch and service + their relaunch

wait: until enough GPUs would have room for j if nobody left, by the service left of the jobs there, on each
GPU one after the other, the shortest first; under ``blocks`` GPUs of one block. save: the longest of their
checkpoints, for which they keep the GPUs: whoever is placed there, also beside j, is launched after that. A
relaunch is a job's ``startup_s``, and its ``checkpoint_s`` once more, to restore.

So a job is preempted for a shorter one alone, at most so often, and each time it has computed for as long as
that costs. One that queues again may still wait behind shorter ones, as under every SRSF; ``--starvation``
bounds that, here too. Transfers are admitted as under SRSF(1).

A checkpoint is of complete iterations: what is under way of one is computed again.
"""

from __future__ import annotations

from hocket.cluster.engine.policies.scheduling_policy import SchedulingPolicy
from hocket.cluster.engine.records import NEVER, NONE
from hocket.kernel import lean_kernel

MOST_PREEMPTIONS = 5

SRSF_REQUEUE = SchedulingPolicy(name="srsf-requeue", requeues=True)


@lean_kernel
def pays_off_at(jobs, j):
    """The tick at which job j, which is placed, has computed there for as long as it costs to stop and go on.

    NEVER where it says nothing of a checkpoint, or has yet to be launched.
    """
    if jobs[j].checkpoint == NONE or jobs[j].launch > 0:
        return NEVER
    return jobs[j].start + jobs[j].launched + jobs[j].checkpoint + jobs[j].relaunch


@lean_kernel
def has_paid_off(jobs, j, now):
    """True if job j, which is placed, has computed, and for as long as it costs to stop it and go on."""
    return now >= pays_off_at(jobs, j) and now > jobs[j].start + jobs[j].launched


@lean_kernel
def may_leave(jobs, rules, j, now):
    """True if job j, which is placed, may be preempted for one that goes before it."""
    starves = now - jobs[j].arrival >= rules.starvation
    return jobs[j].preemptions < MOST_PREEMPTIONS and not starves and has_paid_off(jobs, j, now)


@lean_kernel
def is_worthwhile(jobs, leaving, wait, save, stay):
    """True if a job that would wait so long gains more by jobs that leave (n,) than they lose together.

    save: until they have left; stay: for how long the job has their GPUs then; all in ticks.
    """
    lost = 0
    for j in leaving:
        lost += save + stay + jobs[j].relaunch
    return wait - save > lost
