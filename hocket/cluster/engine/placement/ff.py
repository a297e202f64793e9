"""FF: the first GPUs that have the memory (Wang et al. 2020, section IV-A, a baseline)."""

from __future__ import annotations

from hocket.kernel import kernel


@kernel
def first_fit(gpus, memory, num, chosen):
    """Write the first ``num`` GPUs with ``memory`` bytes free to ``chosen``."""
    n = 0
    for g in range(len(gpus)):
        if n < num and gpus[g].free >= memory:
            chosen[n] = g
            n += 1
