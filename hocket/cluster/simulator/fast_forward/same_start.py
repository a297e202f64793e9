"""Groups: workers of one job that compute the same segment and started together, so that they end together.

A group is one event of the clock, in the lane of the GPU that it was formed at first; ``mate`` leads from
there to its other GPUs. It stays together for as long as its task goes on.
"""

from __future__ import annotations

from typing import NamedTuple

from hocket.cluster.engine.engine import must_wait, pass_segment, task_goes_on
from hocket.cluster.engine.records import NEVER, NONE, Ints
from hocket.kernel import lean_kernel


class TaskGroups(NamedTuple):
    """Groups as they compute, and where a job's began."""

    mate: Ints  # (G,) the next GPU whose task started with this one's
    size: Ints  # (G,) of the first of them
    leader: Ints  # (J, 2) where a forward or backward segment started first, at the latest such instant
    stamp: Ints  # (J, 2) that instant's number
    firsts: Ints  # (G,) the first GPUs of those formed at this instant


@lean_kernel
def compute_on(compute, rules, mate, lane, now):
    """Let a group whose segment ends compute the next one of its task; when that ends.

    NEVER if there is none, or if it has to wait: then the segment is yet to end. In the middle of a task that
    need not wait nobody else gets a GPU, so that no more has to be decided than whether a batch is complete.
    """
    jobs, workers, gpus, segments = compute.jobs, compute.workers, compute.gpus, compute.segments
    w = gpus[lane].running
    j, k = workers[w].job, (workers[w].phase + 1) // 2
    if not task_goes_on(jobs, segments, j, k) or must_wait(jobs, segments, j, k):
        return NEVER
    num, g = 0, lane
    while g != NONE:
        workers[gpus[g].running].phase = 2 * k + 1
        num, g = num + 1, mate[g]
    segment = jobs[j].first_segment + k
    pass_segment(compute, rules, j, segment - 1, num, now)
    return now + segments[segment].ticks


@lean_kernel
def form_groups(compute, started_workers, groups, instant):
    """Put those that have started at this instant into groups; fills ``groups.firsts``, how many."""
    workers, mate, leader, stamp = compute.workers, groups.mate, groups.leader, groups.stamp
    num_groups = 0
    for i in range(compute.counts[0].started):
        w = started_workers[i]
        g, j = workers[w].gpu, workers[w].job
        segment = compute.jobs[j].first_segment + workers[w].phase // 2
        part = compute.segments[segment].backward
        first = leader[j, part]
        # Workers that have waited for others' tasks may be in different segments of one task.
        if stamp[j, part] == instant and workers[compute.gpus[first].running].phase == workers[w].phase:
            mate[g], mate[first] = mate[first], g
            groups.size[first] += 1
        else:
            stamp[j, part], leader[j, part] = instant, g
            mate[g], groups.size[g] = NONE, 1
            groups.firsts[num_groups] = g
            num_groups += 1
    return num_groups
