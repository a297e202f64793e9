"""LWF-kappa: least workload first (Wang et al. 2020, section IV-A, Algorithm 1).

Up to kappa GPUs: the least-loaded ones anywhere. More: servers by their load, GPUs by theirs inside each, so
that a wide job is on few servers and a narrow one fills what is left over.

Differs from the paper
----------------------
* Line 13 cuts the servers to the first ceil(n / N_g), the loop in line 15 runs over all. All of them count,
  or a job could wait for memory on them while other servers have it.
"""

from __future__ import annotations

from hocket.cluster.engine.gpu_memory import has_room
from hocket.cluster.engine.placement.gpu_load import ascending
from hocket.cluster.engine.placement.ls import least_loaded
from hocket.kernel import kernel


@kernel
def by_server(gpus, gpu_load, servers, gpus_per_server, types, memory, chosen):
    """Fill ``chosen`` with GPUs, server by server, the least loaded of each first; how many there are."""
    n, num = 0, len(chosen)
    for server in servers:
        first = server * gpus_per_server
        if n == num:
            break
        for i in ascending(gpu_load[first : first + gpus_per_server]):
            if n < num and has_room(gpus, first + i, types, memory):
                chosen[n] = first + i
                n += 1
    return n


@kernel
def least_workload_first(gpus, sites, rules, servers, types, memory, num):
    """Write ``num`` GPUs of these types with ``memory`` bytes free to ``sites.chosen``.

    servers: those with such GPUs, ascending, whose loads ``sites`` has. Ties go to the first.
    """
    if num <= rules.kappa:
        least_loaded(gpus, sites.gpu_load, types, memory, num, sites.chosen)
    else:
        servers = servers[ascending(sites.server_load[servers])]
        by_server(gpus, sites.gpu_load, servers, rules.gpus_per_server, types, memory, sites.chosen[:num])
