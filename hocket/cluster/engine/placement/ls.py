"""LS, list scheduling: the least-loaded GPUs anywhere (Wang et al. 2020, section IV-A, a baseline)."""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.gpu_memory import has_room
from hocket.cluster.engine.placement.gpu_load import ascending
from hocket.kernel import kernel


@kernel
def least_loaded(gpus, gpu_load, types, memory, num, chosen):
    """Write to ``chosen`` the ``num`` least-loaded GPUs of these types with ``memory`` bytes free.

    Ties go to the first.
    """
    roomy = np.empty(len(gpus), np.int64)
    n = 0
    for g in range(len(gpus)):
        if has_room(gpus, g, types, memory):
            roomy[n] = g
            n += 1
    roomy = roomy[:n]
    chosen[:num] = roomy[ascending(gpu_load[roomy])[:num]]
