"""The processors that a node of a lab has for itself, as a machine of its own would have."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence


def processors_of_nodes(processors: Sequence[int], nodes: int) -> list[set[int]]:
    """The processors of each of ``nodes`` nodes, equally many or equally shared; all where that does not go.

    Where ranks may run anywhere, three of four can be on one of two processors for as long as it takes the
    kernel to move one; steps that all ranks take together are then as slow as those three. Processors are
    divided in the order given; where the threads of a core are numbered far apart, nodes share cores.
    """
    own = len(processors) // nodes
    if own:
        return [set(processors[node * own : (node + 1) * own]) for node in range(nodes)]
    if nodes % len(processors) == 0:
        return [{processors[node % len(processors)]} for node in range(nodes)]
    return [set(processors)] * nodes


@contextlib.contextmanager
def starting_on(processors: Collection[int]) -> Iterator[None]:
    """Whatever this thread starts meanwhile may use ``processors`` alone, from its first moment on."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, processors)
        yield
    finally:
        os.sched_setaffinity(0, before)
