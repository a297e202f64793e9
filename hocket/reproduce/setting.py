"""The extent of a reproduction: full, or quick enough for ten minutes on two cores without root."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hocket.executors import on_processes

T = TypeVar("T")
Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is, and what it is."""


@dataclass(frozen=True, kw_only=True)
class ReproductionSetting:
    """The extent of a reproduction's runs.

    Attributes
    ----------
    quick : whether the papers' clusters are replayed on an emulated one (only where this is False).
    seed : of every random draw.
    steps, noisy_steps : simulated synchronous steps of a configuration; of TicTac's 1,000 runs (Fig. 13).
    profiled_steps : timed steps of iBatch's models, which run on this machine.
    predicted_steps, skipped_steps : of asynchronous workers; the first ones do not count.
    job_sets : of the contention paper's workload, each with a seed of its own.
    network_repeats : how often each message is timed.
    """

    quick: bool = False
    seed: int = 0
    steps: int = 100
    noisy_steps: int = 1000
    profiled_steps: int = 3
    predicted_steps: int = 1000
    skipped_steps: int = 50
    job_sets: int = 20
    network_repeats: int = 10


FULL = ReproductionSetting()
QUICK = ReproductionSetting(
    quick=True,
    steps=20,
    noisy_steps=1000,
    profiled_steps=1,
    predicted_steps=300,
    skipped_steps=50,
    job_sets=5,
    network_repeats=5,
)


def spread(
    function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], progress: Progress | None, what: str
) -> list[T]:
    """``function(*task)`` of each task, in order, on all cores; in this process where it has a single one."""
    if len(os.sched_getaffinity(0)) == 1:
        results = []
        for number, task in enumerate(tasks, start=1):
            results.append(function(*task))
            if progress is not None:
                progress(number, len(tasks), what)
        return results
    report = None if progress is None else lambda done, total: progress(done, total, what)
    return on_processes(function, tasks, report)
