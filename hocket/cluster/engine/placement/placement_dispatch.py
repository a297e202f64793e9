"""Dispatch to the placement's function that chooses: the compiled engine asks here."""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_types import fastest_types, fitting_types
from hocket.cluster.engine.placement.blocks import best_block
from hocket.cluster.engine.placement.earliest import earliest_finish
from hocket.cluster.engine.placement.ff import first_fit
from hocket.cluster.engine.placement.gpu_load import add_up_loads, servers_with_room
from hocket.cluster.engine.placement.ls import least_loaded
from hocket.cluster.engine.placement.lwf import least_workload_first
from hocket.cluster.engine.placement.placement_rule import (
    BLOCKS,
    EARLIEST,
    FIRST_FIT,
    LEAST_LOADED,
    LEAST_WORKLOAD_FIRST,
    RAND,
)
from hocket.cluster.engine.placement.rand import draw_gpus
from hocket.kernel import kernel


@kernel
def _choose(state, rules, j, servers, types):
    """Write GPUs of these types, a bit each, to ``sites.chosen``: job j's, if all of them were of one type.

    The first one is of the type that it should have. servers: those whose loads ``sites`` has.
    """
    jobs, gpus, sites = state.jobs, state.gpus, state.sites
    num, memory, chosen = jobs[j].gpus, sites.class_memory[jobs[j].memory_class], sites.chosen
    if rules.placement == FIRST_FIT:
        first_fit(gpus, types, memory, num, chosen)
    elif rules.placement == RAND:
        draw_gpus(gpus, types, memory, num, rules.seed, jobs[j].draw, chosen)
    elif rules.placement == LEAST_LOADED:
        least_loaded(gpus, sites.gpu_load, types, memory, num, chosen)
    elif rules.placement == LEAST_WORKLOAD_FIRST:
        least_workload_first(gpus, sites, rules, servers, types, memory, num)
    else:
        earliest_finish(state, rules.gpus_per_server, j, types, memory)


@kernel
def _servers_compared(state, rules, j, types):
    """The servers whose loads decide where job j goes, ascending."""
    if rules.placement in (BLOCKS, EARLIEST):
        return np.arange(rules.num_servers)
    if rules.placement in (FIRST_FIT, RAND):
        return np.arange(0)
    memory = state.sites.class_memory[state.jobs[j].memory_class]
    return servers_with_room(state.gpus, rules.gpus_per_server, types, memory)


@kernel
def choose_gpus(state, rules, j, now):
    """Write job j's GPUs to ``sites.chosen``, ascending; how many, 0 if it waits for others.

    Of some type enough are open to it.
    """
    jobs, gpus, sites = state.jobs, state.gpus, state.sites
    num = jobs[j].gpus
    types = fastest_types(sites, j, fitting_types(jobs, sites, j))
    servers = _servers_compared(state, rules, j, types)
    add_up_loads(jobs, state.workers, gpus, rules.gpus_per_server, servers, sites.gpu_load, sites.server_load)
    if rules.placement == BLOCKS:
        num = best_block(state, rules, j, types, now)
    else:
        _choose(state, rules, j, servers, types)
        only = 1 << gpus[sites.chosen[0]].type
        if only != types:
            _choose(state, rules, j, servers, only)
    sites.chosen[:num].sort()
    return num
