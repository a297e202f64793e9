"""The load of GPUs and servers (Wang et al. 2020, section IV-A).

Differs from the paper
----------------------
* Algorithm 1 adds a job's service times its number of GPUs to each of its GPUs, so a job of 8 GPUs weighs on
  a GPU eight times what it will take there. Here it weighs what it will take; the authors' code does so too.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.records import NONE
from hocket.kernel import kernel, lean_kernel


@lean_kernel
def load_of(jobs, workers, gpus, g):
    """Ticks of service left on GPU g; of jobs on several servers with transfers."""
    load, w = 0, gpus[g].resident
    while w != NONE:
        load += jobs[workers[w].job].remaining * jobs[workers[w].job].per_iteration
        w = workers[w].next
    return load


@kernel
def add_up_loads(jobs, workers, gpus, gpus_per_server, gpu_load, server_load):
    """Ticks of service left on each GPU and on all of each server's."""
    for server in range(len(server_load)):
        server_load[server] = 0
        for g in range(server * gpus_per_server, (server + 1) * gpus_per_server):
            gpu_load[g] = load_of(jobs, workers, gpus, g)
            server_load[server] += gpu_load[g]


@kernel
def ascending(values):
    """Places of whole numbers in the order of their values, the first of equal ones first."""
    return np.argsort(values, kind="mergesort")
