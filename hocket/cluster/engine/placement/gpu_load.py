"""The load of GPUs and servers (Wang et al. 2020, section IV-A).

Differs from the paper
----------------------
* Algorithm 1 adds a job's service times its number of GPUs to each of its GPUs, so a job of 8 GPUs weighs on
  a GPU eight times what it will take there. Here it weighs what it will take; the authors' code does so too.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_memory import has_room
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
def servers_with_room(gpus, gpus_per_server, types, memory):
    """The servers with a GPU of these types, a bit each, that has ``memory`` bytes free, ascending."""
    found = np.empty(len(gpus) // gpus_per_server, np.int64)
    n = 0
    for server in range(len(found)):
        for g in range(server * gpus_per_server, (server + 1) * gpus_per_server):
            if has_room(gpus, g, types, memory):
                found[n] = server
                n += 1
                break
    return found[:n]


@kernel
def add_up_loads(jobs, workers, gpus, gpus_per_server, servers, gpu_load, server_load):
    """Ticks of service left on each GPU of these servers, and on all of each one's."""
    for server in servers:
        server_load[server] = 0
        for g in range(server * gpus_per_server, (server + 1) * gpus_per_server):
            gpu_load[g] = load_of(jobs, workers, gpus, g)
            server_load[server] += gpu_load[g]


@kernel
def ascending(values):
    """Places of whole numbers in the order of their values, the first of equal ones first."""
    return np.argsort(values, kind="mergesort")
