"""LS, list scheduling: the least-loaded GPUs, wherever they are (contention paper, section IV-A, a baseline)."""

from __future__ import annotations

import numpy as np

from hocket.kernel import kernel


@kernel
def least_loaded(gpus, gpu_load, memory, num, chosen):
    """Write the ``num`` least-loaded GPUs with ``memory`` bytes free to ``chosen``; ties go to the first."""
    n = 0
    for g in np.argsort(gpu_load, kind="mergesort"):
        if n < num and gpus[g].free >= memory:
            chosen[n] = g
            n += 1
