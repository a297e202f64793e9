"""Joined tasks: the forward and the backward task of a job that has its GPUs for itself, as one event.

Between the two no other job can get its GPUs but one that is placed there, or was and is launched. When one
is, the job goes on task by task, as if it had come here so.
"""

from __future__ import annotations

from hocket.cluster.engine.engine import list_changed_gpu
from hocket.cluster.engine.records import BACKWARD, IN_BACKWARD, IN_FORWARD, NEVER, NONE
from hocket.cluster.simulator.fast_forward.uninterrupted import gpus_alone
from hocket.kernel import lean_kernel
from hocket.sim.loop.lanes import set_time


@lean_kernel
def join_tasks(jobs, workers, gpus, forward_until, j, now):
    """Let job j, which starts to compute on all its GPUs, compute both of its tasks as one; when that ends.

    NEVER if others are on its GPUs, if it has batches that overlap, or if a task takes no time.
    """
    if jobs[j].overlaps == 1 or jobs[j].forward == 0 or jobs[j].backward == 0:
        return NEVER
    if not gpus_alone(jobs, workers, gpus, j):
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
    set_time(clock.tree, clock.groups.leader[j, 0], at if at > now else NEVER)


@lean_kernel
def part_interrupted(compute, clock, now):
    """Let joined tasks go on one by one where a job is placed or launched at this instant."""
    for i in range(compute.counts[0].touched):
        w = compute.gpus[compute.touched_gpus[i]].running
        if w != NONE and clock.forward_until[compute.workers[w].job] >= now:
            _part_tasks(compute, clock, compute.workers[w].job, now)
