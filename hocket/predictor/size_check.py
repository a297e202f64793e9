"""Memory and time that a prediction takes, so that one that makes no sense is refused before it begins."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hocket.errors import HocketError
from hocket.memory import check_memory
from hocket.predictor.equal_workers import are_equal
from hocket.predictor.prepared import Prepared

_NODES_A_SECOND = 3e6  # what one core simulates, about
_MOMENTS_A_SECOND = 1.5e8  # where nothing but maxima over workers is taken
_STREAMS_A_SECOND = 1e8  # looked at again where links are shared otherwise than alike
_LONGEST_S = 86400.0


def check_size(prepared: Sequence[Prepared], repeats: int) -> None:
    """Refuse what needs more memory than there is, or days.

    Raises
    ------
    HocketError
        Naming the most workers asked for, what they need and how to ask for less.
    """
    cores = len(os.sched_getaffinity(0))
    largest = max(prepared, key=lambda each: each.network.num_workers)
    steps, workers = largest.request.steps, largest.network.num_workers
    at_once = sorted((_bytes(each) for each in prepared for _ in range(repeats)), reverse=True)[:cores]
    what, fix = f"{workers} workers and {steps} steps", "ask for fewer of them"
    check_memory(sum(at_once), what, fix)
    needed_s = repeats * sum(map(run_s, prepared)) / cores
    if needed_s > _LONGEST_S:
        raise HocketError(
            f"{what} take about {needed_s / _LONGEST_S:.0f} days on {cores} cores,"
            f" and more than one is refused; {fix}"
        )


def _bytes(prepared: Prepared) -> float:
    """Memory that the arrays of a run take; those of :mod:`hocket.sim` are checked as they are made."""
    workers, steps = prepared.network.num_workers, prepared.request.steps
    ends = 24.0 * steps * prepared.ends_a_step
    if prepared.step is None:
        return ends
    program = prepared.step.program
    nodes, streams = len(program.lane), len(program.bits)
    return ends + workers * (56.0 * nodes + 9.0 * streams + 400.0 * program.num_servers + 100.0)


def run_s(prepared: Prepared) -> float:
    """The time that a run takes on one core, about; of equal workers none to speak of."""
    workers, steps = prepared.network.num_workers, prepared.request.steps
    if prepared.step is None:
        if are_equal(prepared):
            return 0.0
        if prepared.barrier_step is not None:
            return float(workers * steps * prepared.barrier_step.parts_s.shape[1]) / _MOMENTS_A_SECOND
        return steps * prepared.lowered.num_items(workers) / _NODES_A_SECOND
    program = prepared.step.program
    found = workers * steps * len(program.lane) / _NODES_A_SECOND
    if not prepared.topology.all_alike:
        changes = workers * steps * len(program.bits)
        found += changes * 2.0 * workers * program.num_servers / _STREAMS_A_SECOND
    return found
