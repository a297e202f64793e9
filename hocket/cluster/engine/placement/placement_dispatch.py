"""Dispatch to the placement's function that chooses: the compiled engine asks here."""

from __future__ import annotations

from hocket.cluster.engine.placement.earliest import earliest_finish
from hocket.cluster.engine.placement.ff import first_fit
from hocket.cluster.engine.placement.gpu_load import add_up_loads
from hocket.cluster.engine.placement.ls import least_loaded
from hocket.cluster.engine.placement.lwf import least_workload_first
from hocket.cluster.engine.placement.placement_rule import FIRST_FIT, LEAST_LOADED, LEAST_WORKLOAD_FIRST, RAND
from hocket.cluster.engine.placement.rand import draw_gpus
from hocket.kernel import kernel


@kernel
def choose_gpus(state, rules, j):
    """Write job j's GPUs to ``sites.chosen``, ascending; enough have the memory that it needs free."""
    jobs, gpus, sites = state.jobs, state.gpus, state.sites
    num, memory, chosen = jobs[j].gpus, sites.class_memory[jobs[j].memory_class], sites.chosen
    per_server, gpu_load = rules.gpus_per_server, sites.gpu_load
    if rules.placement == FIRST_FIT:
        first_fit(gpus, memory, num, chosen)
    elif rules.placement == RAND:
        draw_gpus(gpus, memory, num, rules.seed, jobs[j].draw, chosen)
    else:
        add_up_loads(jobs, state.workers, gpus, per_server, gpu_load, sites.server_load)
        if rules.placement == LEAST_LOADED:
            least_loaded(gpus, gpu_load, memory, num, chosen)
        elif rules.placement == LEAST_WORKLOAD_FIRST:
            least_workload_first(gpus, sites, rules, memory, num)
        else:
            earliest_finish(state, per_server, j, memory)
    chosen[:num].sort()
