"""Earliest finish: where a job, and those it delays, are predicted to lose the least time. Ours.

The options compared: each server by itself that has the GPUs, each rack with its servers by load, all servers
by load (LWF's choice for wide jobs) and the least-loaded GPUs anywhere (LS's). For each, in seconds:

* the job alone: computing, and on several servers what its transfers add to that when each takes as many
  times longer as jobs send over its busiest link (its own included), over what that link carries: an
  oversubscribed uplink is a slow link. Of a job with batches that is what sticks out of its computing when
  they are so slow, not so many times what sticks out when it is alone, which may be nothing;
* what goes before it under SRSF: on the GPU where that is most, the service left of residents with less left;
* what it delays: its own computing, for each resident with more service left, on the GPU where most are.

The least sum wins, the first one compared of several.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_types import take_pace
from hocket.cluster.engine.placement.gpu_load import ascending
from hocket.cluster.engine.placement.ls import least_loaded
from hocket.cluster.engine.placement.lwf import by_server
from hocket.cluster.engine.records import NONE
from hocket.cluster.engine.segments import STEADY_ITERATIONS
from hocket.kernel import kernel


@kernel
def _users(ports, links, link):
    """The number of jobs that transfer over the link, now or later."""
    users, user = 0, links[link].user
    while user != NONE:
        users, user = users + 1, ports[user].next
    return users


@kernel
def _slowdown(ports, links, rack, capacity, gpus_per_server, option):
    """The most times longer than alone that a transfer between these GPUs takes; option: ascending."""
    num_servers = len(rack)
    first, last = option[0] // gpus_per_server, option[-1] // gpus_per_server
    if first == last:
        return 0.0
    between_racks = len(capacity) > num_servers and rack[first] != rack[last]
    slowdown, at = 1.0, -1
    for g in option:
        server = g // gpus_per_server
        if server == at:
            continue
        at = server
        slowdown = max(slowdown, 1.0 + _users(ports, links, server))
        if between_racks:
            uplink = num_servers + rack[server]
            slowdown = max(slowdown, (1.0 + _users(ports, links, uplink)) * capacity[0] / capacity[uplink])
    return slowdown


@kernel
def exposed_ticks(jobs, segments, batch_ticks, j, slowdown):
    """Ticks that transfers so many times longer than alone add to an iteration of job j, which queues.

    Of one with batches the same as :func:`hocket.cluster.engine.segments.steady_ticks`, less computing.
    """
    if jobs[j].num_batches == 0 or slowdown == 0.0:
        return jobs[j].reduce * slowdown
    first = jobs[j].first_segment + jobs[j].num_segments  # behind its two tasks
    end = first + jobs[j].overlapped_segments
    travel = batch_ticks[jobs[j].first_batch : jobs[j].first_batch + jobs[j].num_batches]
    ready, arrivals = np.empty(len(travel)), np.zeros(len(travel))
    begun = now = free = 0.0
    for _ in range(STEADY_ITERATIONS):
        begun = now
        complete = 0
        for k in range(first, end):
            if segments[k].needs > 0:
                now = max(now, arrivals[segments[k].needs - 1])
            now += segments[k].ticks
            while complete < segments[k].gives:
                ready[complete] = now
                complete += 1
        for batch in range(len(travel)):
            free = max(free, ready[batch]) + travel[batch] * slowdown
            arrivals[batch] = free
    return now - begun - (jobs[j].forward + jobs[j].backward)


@kernel
def lost_time(state, gpus_per_server, j, option):
    """Ticks that job j and those it delays are predicted to take longer on these GPUs; option: ascending."""
    jobs, workers, gpus, sites = state.jobs, state.workers, state.gpus, state.sites
    computing = jobs[j].iterations * (jobs[j].forward + jobs[j].backward)
    slowdown = _slowdown(state.ports, state.links, sites.rack, sites.capacity, gpus_per_server, option)
    exposed = exposed_ticks(jobs, state.segments, sites.batch_ticks, j, slowdown)
    alone = computing + jobs[j].iterations * exposed
    ahead = delayed = 0
    for g in option:
        ahead_here = delayed_here = 0
        w = gpus[g].resident
        while w != NONE:
            other = workers[w].job
            left = jobs[other].remaining * jobs[other].per_iteration
            if left * jobs[other].gpus <= alone * jobs[j].gpus:
                ahead_here += left
            else:
                delayed_here += 1
            w = workers[w].next
        ahead, delayed = max(ahead, ahead_here), max(delayed, delayed_here)
    return alone + ahead + computing * delayed


@kernel
def _options_of(state, gpus_per_server, k, types, memory, num):
    """Write the k-th way to have GPUs of one of ``types`` to ``sites.option``; how many, at most ``num``.

    Servers, then racks, then all servers, then all GPUs.
    """
    gpus, sites = state.gpus, state.sites
    gpu_load, option, rack = sites.gpu_load, sites.option, sites.rack
    num_servers = len(rack)
    if k < num_servers:
        if num > gpus_per_server:
            return 0
        servers = np.arange(k, k + 1)
    elif k < len(sites.capacity):
        servers = ascending(sites.server_load)
        servers = servers[rack[servers] == k - num_servers]
    elif k == len(sites.capacity):
        servers = ascending(sites.server_load)
    else:
        least_loaded(gpus, gpu_load, types, memory, num, option)
        return num
    return by_server(gpus, gpu_load, servers, gpus_per_server, types, memory, option[:num])


@kernel
def earliest_finish(state, gpus_per_server, j, types, memory):
    """Write job j's GPUs, all of one of ``types`` with ``memory`` bytes free, to ``sites.chosen``."""
    sites, num = state.sites, state.jobs[j].gpus
    option, chosen = sites.option, sites.chosen
    least = np.inf
    for kind in range(len(sites.class_fits)):
        if (types >> kind) & 1 == 0:
            continue
        take_pace(state.jobs, sites, j, kind)
        for k in range(len(sites.capacity) + 2):
            if _options_of(state, gpus_per_server, k, 1 << kind, memory, num) < num:
                continue
            option[:num].sort()
            lost = lost_time(state, gpus_per_server, j, option[:num])
            if lost < least:
                least = lost
                chosen[:num] = option[:num]
