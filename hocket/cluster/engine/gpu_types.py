"""Types of GPUs: those that a job may have now, and the pace at which it computes on one.

A job is on GPUs of one type. It gets those of the type on which it computes fastest, of the types where it
fits now; of equally fast ones the type of the GPU that the placement would take first. Where jobs wait for a
faster type, :mod:`hocket.cluster.engine.awaited_types` says for how long.
"""

from __future__ import annotations

from hocket.cluster.engine.records import NEVER
from hocket.kernel import lean_kernel


@lean_kernel
def fitting_types(jobs, sites, j):
    """The types, a bit each, of which enough GPUs are open to job j."""
    found = 0
    for kind in range(len(sites.class_fits)):
        if (jobs[j].types >> kind) & 1 and sites.class_fits[kind, jobs[j].memory_class] >= jobs[j].gpus:
            found |= 1 << kind
    return found


@lean_kernel
def fastest_types(sites, j, types):
    """Of ``types``, a bit each, those on which job j computes an iteration fastest."""
    least, found = NEVER, 0
    for kind in range(len(sites.class_fits)):
        if (types >> kind) & 1:
            computing = sites.pace[j, kind].forward + sites.pace[j, kind].backward
            if computing < least:
                least, found = computing, 0
            if computing == least:
                found |= 1 << kind
    return found


@lean_kernel
def take_pace(jobs, sites, j, kind):
    """Let job j, which is not placed, have the times that it takes on a type of GPU; nothing of transfers."""
    pace = sites.pace[j, kind]
    jobs[j].type = kind
    jobs[j].forward, jobs[j].backward = pace.forward, pace.backward
    jobs[j].per_iteration = pace.forward + pace.backward
    jobs[j].reduce = pace.reduce
    jobs[j].first_segment, jobs[j].overlapped_segments = pace.first_segment, pace.overlapped_segments


@lean_kernel
def service_on(jobs, sites, j, kind):
    """Ticks that are left of job j, which queues, on GPUs of a type: with transfers if it has several."""
    pace = sites.pace[j, kind]
    service = jobs[j].remaining * (pace.forward + pace.backward)
    if jobs[j].gpus > 1:
        service += jobs[j].remaining * pace.reduce
    return service
