"""LS, list scheduling: the least-loaded GPUs anywhere (Wang et al. 2020, section IV-A, a baseline)."""

from __future__ import annotations

from hocket.cluster.engine.placement.gpu_load import ascending
from hocket.kernel import kernel


@kernel
def least_loaded(gpus, gpu_load, memory, num, chosen):
    """Write the ``num`` least-loaded GPUs with ``memory`` bytes free to ``chosen``; ties go to the first."""
    n = 0
    for g in ascending(gpu_load):
        if n < num and gpus[g].free >= memory:
            chosen[n] = g
            n += 1
