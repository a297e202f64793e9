"""Groups: workers of one job that compute the same segment and started together, so that they end together.

A group is one event of the clock, in the lane of the GPU that it was formed at first; ``mate`` leads from
there to its other GPUs. It stays together for as long as its task goes on.
"""

from __future__ import annotations

from hocket.cluster.engine.engine import must_wait, pass_segment, task_goes_on
from hocket.cluster.engine.records import NEVER, NONE
from hocket.kernel import lean_kernel


@lean_kernel
def compute_on(jobs, workers, gpus, segments, batch_bytes, ready, counts, rules, mate, lane, now):
    """Let a group whose segment ends compute the next one of its task; when that ends.

    NEVER if there is none, or if it has to wait: then the segment is yet to end. In the middle of a task that
    need not wait nobody else gets a GPU, so that no more has to be decided than whether a batch is complete.
    """
    w = gpus[lane].running
    j, k = workers[w].job, (workers[w].phase + 1) // 2
    if not task_goes_on(jobs, segments, j, k) or must_wait(jobs, segments, j, k):
        return NEVER
    num, g = 0, lane
    while g != NONE:
        workers[gpus[g].running].phase = 2 * k + 1
        num, g = num + 1, mate[g]
    segment = jobs[j].first_segment + k
    pass_segment(jobs, segments, batch_bytes, ready, counts, rules, j, segment - 1, num, now)
    return now + segments[segment].ticks


@lean_kernel
def form_groups(
    jobs, workers, gpus, segments, counts, started, mate, group_size, leader, stamp, groups, instant
):
    """Put those that have started at this instant into groups; fills ``groups`` with first GPUs, how many.

    leader, stamp (J, 2): of each job's forward and backward task the GPU that started first, and when.
    """
    num_groups = 0
    for i in range(counts[0].started):
        w = started[i]
        g, j = workers[w].gpu, workers[w].job
        part = segments[jobs[j].first_segment + workers[w].phase // 2].backward
        first = leader[j, part]
        # Workers that have waited for others' tasks may be in different segments of one task.
        if stamp[j, part] == instant and workers[gpus[first].running].phase == workers[w].phase:
            mate[g], mate[first] = mate[first], g
            group_size[first] += 1
        else:
            stamp[j, part], leader[j, part] = instant, g
            mate[g], group_size[g] = NONE, 1
            groups[num_groups] = g
            num_groups += 1
    return num_groups
