"""Awaited types: a job waits for a faster type of GPU where it is over sooner than on what is open. Ours.

Each time that the queue is placed, in its order, a job that is not placed yet has a predicted end on each
type of GPU that it accepts:

* where GPUs enough are open to it, its service there, from now on;
* else that service after a wait. A GPU has room for it when the jobs there are over, by their service left,
  and when those ahead in the queue have had it that are to have it first. Of the GPUs that have room first it
  takes as many as it needs, and waits for the last of them.

If the earliest end is on a type that is not open to it, it waits; of equal ends it takes what is open. Then,
and where nothing is open to it, it is entered on those GPUs, up to its predicted end, for those behind it in
the queue. So jobs wait for a fast GPU one behind the other as long as that pays for the last of them, and the
next one takes a slower one.

Nothing is held for a job that waits: it is looked at anew with each job that comes or ends, and one that goes
first in the queue, or is narrower, may take what it waited for. A job that has queued for as long as
starvation says waits no longer. Known are the service left and the queue; that jobs share GPUs and links, and
who is yet to come, is not counted. A job that may have several numbers of GPUs is counted with the fewest.

The rule is that of list scheduling on unrelated machines by earliest completion (Ibarra and Kim, "Heuristic
Algorithms for Scheduling Independent Tasks on Nonidentical Processors", JACM 1977), with the policy's order.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.gpu_memory import memory_once_over
from hocket.cluster.engine.gpu_types import service_on
from hocket.cluster.engine.placement.gpu_load import ascending, load_of
from hocket.cluster.engine.records import NEVER, NONE
from hocket.cluster.engine.scheduling import Scheduling
from hocket.errors import HocketError
from hocket.kernel import kernel


def check_types_differ(scheduling: Scheduling, cluster: Cluster) -> None:
    """Refuse to wait for a faster type where there is one type alone; raises HocketError."""
    if scheduling.wait_for_faster and len(cluster.types) == 1:
        raise HocketError(
            "jobs are to wait for faster types of GPUs, and the cluster has one type; name several"
            " (--gpu-types a100:8,v100:8; live --gpus 0:a100,1:v100), or leave --wait-for-faster out"
        )


@kernel
def _first_with_room(state, rules, j, kind):
    """The GPUs of a type that have room for job j first, as many as it needs, and the ticks until then.

    NEVER, and some GPUs, where there are too few.
    """
    jobs, gpus, sites = state.jobs, state.gpus, state.sites
    memory = sites.class_memory[jobs[j].memory_class]
    wait = np.empty(len(gpus), np.int64)
    for g in range(len(gpus)):
        wait[g] = NEVER
        if gpus[g].type == kind and memory_once_over(state, rules, g) >= memory:
            load = 0 if gpus[g].free >= memory else load_of(jobs, state.workers, gpus, g)
            wait[g] = max(load, sites.promised[g])
    first = ascending(wait)[: jobs[j].gpus]
    return first, wait[first[-1]]


@kernel
def awaits_type(state, rules, j, fitting, now):
    """True if job j would be over sooner on GPUs that are not open to it, of which it is given the first.

    fitting: the types of which enough are open to it, a bit each.
    """
    jobs, sites = state.jobs, state.sites
    if now - jobs[j].arrival >= rules.starvation:
        return False
    least, awaited = NEVER, NONE
    for kind in range(len(sites.class_fits)):
        if (fitting >> kind) & 1:
            least = min(least, service_on(jobs, sites, j, kind))
    for kind in range(len(sites.class_fits)):
        if (jobs[j].types >> kind) & 1 == 0 or (fitting >> kind) & 1:
            continue
        service = service_on(jobs, sites, j, kind)
        if service >= least:
            continue
        first, wait = _first_with_room(state, rules, j, kind)
        if wait < NEVER and wait + service < least:
            least, awaited = wait + service, kind
            sites.option[: jobs[j].gpus] = first
    if awaited == NONE:
        return False
    for g in sites.option[: jobs[j].gpus]:
        sites.promised[g] = least
    return True
