"""The load of GPUs and servers (Wang et al. 2020, section IV-A).

Differs from the paper
----------------------
* Algorithm 1 adds a job's service times its number of GPUs to each of its GPUs, so a job of 8 GPUs weighs on
  a GPU eight times what it will take there. Here it weighs what it will take; the authors' code does so too.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.records import NONE
from hocket.kernel import kernel


@kernel
def add_up_loads(jobs, workers, gpus, gpus_per_server, gpu_load, server_load):
    """Ticks of service left on each GPU and on all of each server's; of jobs on several with transfers."""
    for server in range(len(server_load)):
        server_load[server] = 0
        for g in range(server * gpus_per_server, (server + 1) * gpus_per_server):
            gpu_load[g] = 0
            w = gpus[g].resident
            while w != NONE:
                j = workers[w].job
                gpu_load[g] += jobs[j].remaining * jobs[j].per_iteration
                w = workers[w].next
            server_load[server] += gpu_load[g]


@kernel
def ascending(values):
    """Places of whole numbers in the order of their values, the first of equal ones first."""
    return np.argsort(values, kind="mergesort")
