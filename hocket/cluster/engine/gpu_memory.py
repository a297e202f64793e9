"""The memory of GPUs: taken and given back, with counts of those of a type that have room for a need."""

from __future__ import annotations

from hocket.cluster.engine.records import CLOSED, NONE
from hocket.kernel import lean_kernel


@lean_kernel
def take_memory(gpus, sites, g, memory):
    """Take bytes of a GPU, or give them back if negative."""
    class_memory, class_fits = sites.class_memory, sites.class_fits
    kind, old, new = gpus[g].type, gpus[g].free, gpus[g].free - memory
    gpus[g].free = new
    for c in range(len(class_memory)):
        if new < class_memory[c] <= old:
            class_fits[kind, c] -= 1
        elif old < class_memory[c] <= new:
            class_fits[kind, c] += 1


@lean_kernel
def memory_once_over(state, rules, g):
    """Bytes that jobs may have of GPU g once those there are over."""
    jobs, workers = state.jobs, state.workers
    found = state.gpus[g].free
    if state.gpus[g].jobs == rules.jobs_per_gpu:
        found += CLOSED
    w = state.gpus[g].resident
    while w != NONE:
        found += state.sites.class_memory[jobs[workers[w].job].memory_class]
        w = workers[w].next
    return found


@lean_kernel
def has_room(gpus, g, types, memory):
    """True if GPU g is of one of these types, a bit each, and has so many bytes free."""
    return (types >> gpus[g].type) & 1 == 1 and gpus[g].free >= memory
