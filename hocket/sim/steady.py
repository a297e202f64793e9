"""Step times alone: long runs for predictions, also on workers and links that differ from each other."""

from __future__ import annotations

import numpy as np

from hocket.errors import HocketError
from hocket.graph.csr import Indices
from hocket.sim.lowering.lowered import Floats
from hocket.sim.step_runs import StepRuns


def step_times(run: StepRuns, iterations: int, watch: Indices | None = None) -> tuple[Floats, int]:
    """Seconds of each step, (iterations,), and how many operations, transfers and messages were simulated.

    The steps of :func:`hocket.sim.simulate` with the same draws, without bounds and figures. watch (1,): how
    many steps are simulated, for another thread to read.

    Raises
    ------
    HocketError
        When ``iterations`` is not positive.
    """
    if iterations < 1:
        raise HocketError(f"{iterations} iterations are no run; simulate at least 1")
    seconds = np.empty(iterations)
    for k, step in enumerate(run.steps(iterations)):
        seconds[k] = step.end_s - step.start_s
        if watch is not None:
            watch[0] = k + 1
    return seconds, iterations * run.events_a_step
