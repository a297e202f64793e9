"""One run of a prepared configuration: how fast its steps were once they were steady, and what was busy.

Steps are simulated from a common start. Workers that begin in lockstep may leave it slowly, and throughput
then rises as they do: where the two halves of a run differ, it is run again with four times the steps, and
its second half is what counts.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from hocket.errors import HocketError
from hocket.graph.csr import Indices
from hocket.predictor.equal_workers import are_equal, equal_step_times
from hocket.predictor.kernel_run import run_steps
from hocket.predictor.prepared import Prepared
from hocket.predictor.usage import Usage, of_reductions, of_servers
from hocket.sim.lowering.lowered import Floats
from hocket.sim.steady import step_times
from hocket.sim.step_runs import StepRuns

LARGEST_SEED = 2**63 - 1  # kernels count in 64 bits; larger seeds wrap around
STEADY = 0.05
"""By how much the halves of a steady run may differ, of the larger."""
_MOST_ENDS = 1 << 25  # half a gigabyte


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run: seconds a step, examples a second, what was simulated, and how busy everything was.

    ``steps``: of each worker; ``steady``: whether halves of the run agree, None where one step counts;
    ``between``: the simulated numbers of workers that it is interpolated between, None of a simulated run.
    """

    step_s: float
    throughput: float
    steps: int
    steady: bool | None
    events: int
    wall_s: float
    usage: Usage
    between: tuple[int, int] | None = None


def run(prepared: Prepared, seed: int, watch: Indices | None = None) -> Outcome:
    """Simulate with one seed; watch (2,): how many steps are complete and in all, for others to read."""
    seed &= LARGEST_SEED
    watch = np.zeros(2, np.int64) if watch is None else watch
    started, request = time.perf_counter(), prepared.request
    steps, skip, events = request.steps, request.skip, 0
    most = min(request.most_steps, max(steps, _MOST_ENDS // prepared.ends_a_step))
    while True:
        watch[:] = 0, steps * prepared.ends_a_step
        ends_s, workers, simulated = _ends(prepared, seed, steps, watch)
        events += simulated
        steady = _steady(ends_s, request.skip, prepared.ends_a_step)
        if steady is not False or steps >= most:
            break
        steps = min(4 * steps, most)
        skip = max(request.skip, steps // 2)
    skipped = skip * prepared.ends_a_step
    from_s = float(ends_s[skipped - 1]) if skipped else 0.0
    step_s = (float(ends_s[-1]) - from_s) / (steps - skip)
    return Outcome(
        step_s=step_s,
        throughput=throughput_of(prepared, step_s),
        steps=steps,
        steady=steady,
        events=events,
        wall_s=time.perf_counter() - started,
        usage=_usage(prepared, _rates(ends_s, workers, skipped, from_s, prepared.network.num_workers)),
    )


def throughput_of(prepared: Prepared, step_s: float) -> float:
    """Examples a second, where each worker's step takes so long."""
    examples = (prepared.needed or prepared.network.num_workers) * prepared.request.graph.batch_size
    if not (step_s > 0 and 0 < examples / step_s < math.inf):
        rule = "nothing in it takes time" if step_s == 0 else "such times cannot be counted with"
        raise HocketError(f"a step takes {step_s:g} s: {rule}; give a step whose operations compute")
    return examples / step_s


def _ends(prepared: Prepared, seed: int, steps: int, watch: Indices) -> tuple[Floats, Indices, int]:
    """Ends of steps, whose each is (-1: all workers'), and how many events that took."""
    request, network = prepared.request, prepared.network
    if prepared.step is None:
        seconds, events = _overlapping(prepared, seed, steps - request.skip, watch)
        # Each step is drawn by itself and has run-up of its own: none has to be simulated only to be skipped.
        ends_s = np.concatenate([np.zeros(request.skip), np.cumsum(seconds)])
        return ends_s, np.full(steps, -1), events
    ends_s, workers = run_steps(
        prepared.step,
        prepared.topology,
        steps * prepared.ends_a_step,
        prepared.run_settings(seed),
        watch=watch,
    )
    return ends_s, workers, network.num_workers * steps * prepared.step.num_events


def _overlapping(prepared: Prepared, seed: int, iterations: int, watch: Indices) -> tuple[Floats, int]:
    """Seconds of each step, (iterations,), and how many events that took, where steps overlap."""
    if are_equal(prepared):
        return equal_step_times(prepared, iterations, watch)
    if prepared.barrier_step is not None:
        return prepared.barrier_step.step_times(seed, prepared.speeds, iterations, watch)
    runs = StepRuns(
        prepared.lowered,
        seed,
        prepared.rules.drawn_anew,
        speeds=prepared.speeds,
        topology=prepared.topology if prepared.plan.architecture == "ps" else None,
    )
    return step_times(runs, iterations, watch)


def _steady(ends_s: Floats, skip: int, each: int) -> bool | None:
    """Tell whether two halves, whole steps of ``each`` ends, took as long; None where there are no two steps.

    By less than one step they may differ because of where they are cut.
    """
    half = (len(ends_s) // each - skip) // 2 * each
    if half == 0:
        return None
    from_s = float(ends_s[-2 * half - 1]) if len(ends_s) > 2 * half else 0.0
    middle_s = float(ends_s[-half - 1])
    first_s, second_s = middle_s - from_s, float(ends_s[-1]) - middle_s
    longer_s = max(first_s, second_s)
    return abs(first_s - second_s) <= max(STEADY, each / half) * longer_s


def _rates(ends_s: Floats, workers: Indices, skipped: int, from_s: float, num_workers: int) -> Floats:
    """Steps a second of each worker after the skipped ones, (W,)."""
    span_s = float(ends_s[-1]) - from_s
    if span_s <= 0:
        return np.zeros(num_workers)
    if workers[-1] < 0:
        return np.full(num_workers, (len(ends_s) - skipped) / span_s)
    return np.bincount(workers[skipped:], minlength=num_workers) / span_s


def _usage(prepared: Prepared, rates: Floats) -> Usage:
    if prepared.plan.architecture != "ps":
        worker_s = float(prepared.request.graph.durations_s.sum(axis=0).mean())
        return of_reductions(rates, prepared.speeds, worker_s, prepared.lowered_for_one.communication_s)
    return of_servers(
        prepared.step_on_servers,
        prepared.topology,
        prepared.speeds,
        rates,
        startup_s=prepared.network.startup_s,
        synchronous=prepared.mode == "sync",
    )
