"""Workers that are alike in all that a step takes: one of them is simulated, and stands for all.

Where every worker repeats one and the same step at one speed, reductions begin for all of them at one moment,
and nothing is drawn. So all do the same at the same time, and one that reduces with others who are always
ready takes as long. Once its steps have come to a rhythm they keep it, and no more of them are simulated.
Both leave every step as long as it is when all workers are simulated, to within rounding.
"""

from __future__ import annotations

import numpy as np

from hocket.graph.csr import Indices
from hocket.predictor.prepared import Prepared
from hocket.sim.lowering.lowered import Floats
from hocket.sim.steady import step_times
from hocket.sim.step_runs import StepRuns

_TRIED = 24
"""Steps to simulate; the rhythm is that of the second half of them."""
_ALIKE = 1e-9


def are_equal(prepared: Prepared) -> bool:
    """Tell whether one worker stands for all: all-reduces, one speed, one step, and nothing that is drawn."""
    if prepared.plan.architecture == "ps" or prepared.rules.drawn_anew:
        return False
    if len(set(prepared.speeds)) > 1:
        return False
    return not np.ptp(prepared.request.graph.durations_s, axis=1).any()


def equal_step_times(prepared: Prepared, iterations: int, watch: Indices) -> tuple[Floats, int]:
    """Seconds of each step, (iterations,), and how many operations and transfers were simulated.

    watch (1,): how many steps are known, for another thread to read.
    """
    run = StepRuns(prepared.lowered_for_one, 0, False, speeds=prepared.speeds[:1])
    seconds, events = step_times(run, min(iterations, _TRIED))
    if iterations > _TRIED:
        rhythm = seconds[_TRIED // 2 :]
        if np.ptp(rhythm) <= _ALIKE * rhythm.max():
            seconds = np.concatenate([seconds, np.full(iterations - _TRIED, rhythm.mean())])
        else:
            seconds, events = step_times(run, iterations)
    watch[0] = iterations
    return seconds, events
