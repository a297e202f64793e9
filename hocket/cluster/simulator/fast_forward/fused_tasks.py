"""Joined tasks: the forward and the backward task of a job that computes on all its GPUs, as one event.

A job that waits for one of its GPUs goes behind it there, until the two tasks are over.
Between the two tasks a GPU can change hands only where another job becomes ready that goes before it: one
that is placed or launched there, or has completed an iteration. Then the job goes on task by task, as if it
had come here so.
"""

from __future__ import annotations

from hocket.cluster.engine.engine import first_ready, list_changed_gpu
from hocket.cluster.engine.policies.policy_dispatch import before
from hocket.cluster.engine.records import BACKWARD, IN_BACKWARD, IN_FORWARD, NEVER, NONE
from hocket.kernel import lean_kernel
from hocket.sim.loop.lanes import set_time


@lean_kernel
def join_tasks(jobs, workers, forward_until, j, now):
    """Let job j, which starts to compute on all its GPUs, compute both of its tasks as one; when that ends.

    NEVER if it has batches that overlap, or if a task takes no time.
    """
    if jobs[j].overlaps == 1 or jobs[j].forward == 0 or jobs[j].backward == 0:
        return NEVER
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        workers[w].phase = IN_BACKWARD
    forward_until[j] = now + jobs[j].forward
    return forward_until[j] + jobs[j].backward


@lean_kernel
def _part_tasks(compute, clock, j, now):
    """Let job j end its forward task by itself if that is not over."""
    jobs, workers, gpus = compute.jobs, compute.workers, compute.gpus
    at = clock.forward_until[j]
    clock.forward_until[j] = NONE
    # At a later instant of this time what ends now has ended.
    if at == now and clock.hands[0].turn > 1:
        return
    phase = IN_FORWARD if at > now else BACKWARD
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        workers[w].phase = phase
        if phase == BACKWARD:
            gpus[workers[w].gpu].running = NONE
            list_changed_gpu(gpus, compute.touched_gpus, compute.counts, workers[w].gpu)
    tree = clock.tree[: 2 * clock.hands[0].leaves]
    set_time(tree, clock.groups.leader[j, 0], at if at > now else NEVER)


@lean_kernel
def part_challenged(compute, clock, now):
    """Let joined tasks go on one by one where one who is ready now goes before their job."""
    jobs, workers, gpus = compute.jobs, compute.workers, compute.gpus
    for i in range(compute.counts[0].touched):
        g = compute.touched_gpus[i]
        w = gpus[g].running
        if w == NONE or clock.forward_until[workers[w].job] < now:
            continue
        other = first_ready(jobs, workers, gpus, g)
        if other != NONE and before(jobs, workers[other].job, workers[w].job):
            _part_tasks(compute, clock, workers[w].job, now)
