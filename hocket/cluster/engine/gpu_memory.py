"""The memory of GPUs: taken and given back, with counts of the GPUs that have room for each need."""

from __future__ import annotations

from hocket.kernel import lean_kernel


@lean_kernel
def take_memory(gpus, sites, g, memory):
    """Take bytes of a GPU, or give them back if negative."""
    class_memory, class_fits = sites.class_memory, sites.class_fits
    old, new = gpus[g].free, gpus[g].free - memory
    gpus[g].free = new
    for c in range(len(class_memory)):
        if new < class_memory[c] <= old:
            class_fits[c] -= 1
        elif old < class_memory[c] <= new:
            class_fits[c] += 1
