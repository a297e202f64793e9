"""LS, list scheduling: the least-loaded GPUs anywhere (Wang et al. 2020, section IV-A, a baseline)."""

from __future__ import annotations

from hocket.cluster.engine.gpu_memory import has_room
from hocket.cluster.engine.placement.gpu_load import ascending
from hocket.kernel import kernel


@kernel
def least_loaded(gpus, gpu_load, types, memory, num, chosen):
    """Write to ``chosen`` the ``num`` least-loaded GPUs of these types with ``memory`` bytes free.

    Ties go to the first.
    """
    n = 0
    for g in ascending(gpu_load):
        if n < num and has_room(gpus, g, types, memory):
            chosen[n] = g
            n += 1
