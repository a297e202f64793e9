"""RAND: GPUs drawn among those that have the memory (Wang et al. 2020, section V, a baseline)."""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_memory import has_room
from hocket.cluster.engine.placement.gpu_load import ascending
from hocket.kernel import kernel
from hocket.sim.draws import draw_number


@kernel
def draw_gpus(gpus, types, memory, num, seed, draw, chosen):
    """Write to ``chosen`` the ``num`` GPUs that draw the least numbers for a job, of those open to it.

    These are of one of ``types``, with ``memory`` bytes free.

    So what a job gets depends on the seed, its place among all jobs (``draw``) and what is free,
    not on how many were placed before it.
    """
    number = np.empty(len(gpus), np.int64)
    for g in range(len(gpus)):
        number[g] = draw_number(seed, draw, g)
    n = 0
    for g in ascending(number):
        if n < num and has_room(gpus, g, types, memory):
            chosen[n] = g
            n += 1
