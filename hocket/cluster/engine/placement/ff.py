"""FF: the first GPUs that have the memory (Wang et al. 2020, section IV-A, a baseline)."""

from __future__ import annotations

from hocket.cluster.engine.gpu_memory import has_room
from hocket.kernel import kernel


@kernel
def first_fit(gpus, types, memory, num, chosen):
    """Write the first ``num`` GPUs of these types with ``memory`` bytes free to ``chosen``."""
    n = 0
    for g in range(len(gpus)):
        if n < num and has_room(gpus, g, types, memory):
            chosen[n] = g
            n += 1
