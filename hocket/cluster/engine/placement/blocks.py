"""Blocks: servers side by side that jobs of one width share, whole or not at all. Ours.

A job of n GPUs needs s = ceil(n / GPUs of a server) servers. They are taken from one *block*: 1, 2, 4, 8 ...
servers side by side, the least such number that is not below s, the first block beginning at server 0. So the
servers of two jobs are the same ones, or those of one are among the other's, or they have none in common. A
transfer that waits for one job's servers then leaves none of its own idle beside it, as happens where jobs
overlap by a server each, and a job that fits into a server is never on two.

A job for which no block has room waits in the queue, also where GPUs enough are free elsewhere. It takes
these, servers by load as LWF has it, where no block would have room with all jobs over (nodes are drained, or
have fewer GPUs), or once it counts as starving.

Of the blocks with room it takes the one where the least time is lost, the first of several. That is, in
seconds of service:

* what goes before it under SRSF: on the block's server where that is most, the transfers left of jobs with
  less service left; on its GPU where that is most, the computing left of such jobs;
* what it delays: its own transfers for each job with more service left, on the server where most are; its own
  computing for each such job, on the GPU where most are.

Inside a block: servers by load, GPUs by load inside each, as LWF has it.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_memory import memory_once_over
from hocket.cluster.engine.gpu_types import take_pace
from hocket.cluster.engine.placement.gpu_load import ascending
from hocket.cluster.engine.placement.lwf import by_server
from hocket.cluster.engine.records import CLOSED, NONE
from hocket.kernel import kernel, lean_kernel


@lean_kernel
def block_size(num, gpus_per_server):
    """The number of servers of a block for ``num`` GPUs: a power of two."""
    size = 1
    while size * gpus_per_server < num:
        size *= 2
    return size


@lean_kernel
def _lost_on_links(ports, links, jobs, gpus_per_server, option, service, transfers):
    """Ticks lost on the servers of these GPUs by the transfers of a job with so much service."""
    ahead = delayed = 0
    at = NONE
    for g in option:
        server = g // gpus_per_server
        if server == at:
            continue
        at = server
        ahead_here = delayed_here = 0
        user = links[server].user
        while user != NONE:
            other = ports[user].job
            user = ports[user].next
            if jobs[other].remaining * jobs[other].per_iteration * jobs[other].gpus <= service:
                ahead_here += jobs[other].remaining * jobs[other].reduce
            else:
                delayed_here += 1
        ahead, delayed = max(ahead, ahead_here), max(delayed, delayed_here)
    return ahead + delayed * transfers


@lean_kernel
def _lost_on_gpus(workers, gpus, jobs, option, service, computing):
    """Ticks lost on these GPUs by the computing of a job with so much service."""
    ahead = delayed = 0
    for g in option:
        ahead_here = delayed_here = 0
        w = gpus[g].resident
        while w != NONE:
            other = workers[w].job
            w = workers[w].next
            if jobs[other].remaining * jobs[other].per_iteration * jobs[other].gpus <= service:
                ahead_here += jobs[other].remaining * (jobs[other].forward + jobs[other].backward)
            else:
                delayed_here += 1
        ahead, delayed = max(ahead, ahead_here), max(delayed, delayed_here)
    return ahead + delayed * computing


@lean_kernel
def lost_service(state, gpus_per_server, j, option):
    """Ticks of service that are lost if job j has these GPUs; option: ascending."""
    jobs, num = state.jobs, state.jobs[j].gpus
    computing = jobs[j].remaining * (jobs[j].forward + jobs[j].backward)
    transfers = jobs[j].remaining * jobs[j].reduce if num > gpus_per_server else 0
    service = (computing + transfers) * num
    lost = _lost_on_gpus(state.workers, state.gpus, jobs, option, service, computing)
    if transfers > 0:
        lost += _lost_on_links(state.ports, state.links, jobs, gpus_per_server, option, service, transfers)
    return lost


@lean_kernel
def _has_room_once_over(state, rules, g, memory):
    """True if GPU g has so much memory for jobs that come when those there are over."""
    room = memory_once_over(state, rules, g)
    # Held for another job it is closed once, withheld from all twice.
    if -CLOSED <= room < memory - CLOSED // 2:
        room += CLOSED
    return room >= memory


@kernel
def _waits(state, rules, j, types, now):
    """True if a block will have room for job j, which is not starving, on GPUs of one of ``types``."""
    jobs, gpus, num = state.jobs, state.gpus, state.jobs[j].gpus
    if now - jobs[j].arrival >= rules.starvation:
        return False
    memory = state.sites.class_memory[jobs[j].memory_class]
    size = block_size(num, rules.gpus_per_server) * rules.gpus_per_server
    room = np.empty(len(state.sites.class_fits), np.int64)
    for first in range(0, len(gpus), size):
        room[:] = 0
        for g in range(first, min(first + size, len(gpus))):
            if (types >> gpus[g].type) & 1 and _has_room_once_over(state, rules, g, memory):
                room[gpus[g].type] += 1
        if room.max() >= num:
            return True
    return False


@kernel
def _take_any(state, rules, j, types, servers):
    """Write GPUs of one of ``types`` to ``sites.chosen``: by ``servers``, of the type of the first one."""
    gpus, sites = state.gpus, state.sites
    memory, chosen = sites.class_memory[state.jobs[j].memory_class], sites.chosen[: state.jobs[j].gpus]
    per_server = rules.gpus_per_server
    by_server(gpus, sites.gpu_load, servers, per_server, types, memory, chosen)
    only = 1 << gpus[chosen[0]].type
    return by_server(gpus, sites.gpu_load, servers, per_server, only, memory, chosen)


@kernel
def best_block(state, rules, j, types, now):
    """Write job j's GPUs, which are open to it, to ``sites.chosen``; how many, 0 if it waits.

    types: those on which it computes fastest, of which enough are open, a bit each.
    """
    jobs, gpus, sites, per_server = state.jobs, state.gpus, state.sites, rules.gpus_per_server
    num, memory = jobs[j].gpus, sites.class_memory[jobs[j].memory_class]
    option, suits, size = sites.option[:num], jobs[j].type, block_size(num, per_server)
    servers = ascending(sites.server_load)
    found, least = 0, 0
    for kind in range(len(sites.class_fits)):
        if (types >> kind) & 1 == 0:
            continue
        take_pace(jobs, sites, j, kind)
        for first in range(0, rules.num_servers, size):
            inside = servers[(servers >= first) & (servers < first + size)]
            if by_server(gpus, sites.gpu_load, inside, per_server, 1 << kind, memory, option) < num:
                continue
            option.sort()
            lost = lost_service(state, per_server, j, option)
            if found == 0 or lost < least:
                found, least = num, lost
                sites.chosen[:num] = option
    take_pace(jobs, sites, j, suits)
    if found == 0 and not _waits(state, rules, j, types, now):
        found = _take_any(state, rules, j, types, servers)
    return found
