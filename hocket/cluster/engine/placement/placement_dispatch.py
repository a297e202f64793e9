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
def choose_gpus(jobs, workers, gpus, ports, links, segments, sites, rules, j, memory):
    """Write job j's GPUs to ``sites.chosen``, ascending; enough have ``memory`` bytes free."""
    num, per_server, chosen = jobs[j].gpus, rules.gpus_per_server, sites.chosen
    gpu_load, server_load = sites.gpu_load, sites.server_load
    if rules.placement == FIRST_FIT:
        first_fit(gpus, memory, num, chosen)
    elif rules.placement == RAND:
        draw_gpus(gpus, memory, num, rules.seed, jobs[j].draw, chosen)
    else:
        add_up_loads(jobs, workers, gpus, per_server, gpu_load, server_load)
        if rules.placement == LEAST_LOADED:
            least_loaded(gpus, gpu_load, memory, num, chosen)
        elif rules.placement == LEAST_WORKLOAD_FIRST:
            least_workload_first(gpus, gpu_load, server_load, per_server, memory, num, rules.kappa, chosen)
        else:
            earliest_finish(jobs, workers, gpus, ports, links, segments, sites, per_server, j, memory)
    chosen[:num].sort()
