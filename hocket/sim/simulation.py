"""Run a plan on a simulated job: step times, overlap, and where the limit is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hocket.errors import HocketError
from hocket.graph import Plan, ResultRow, StepGraph, Timeline, check_exchanges
from hocket.graph.clipped_step import clipped_for
from hocket.graph.result import overlap_of
from hocket.network import Network
from hocket.notebook import ObjectSummary, Summarized
from hocket.sim.bounds.lower_bound import lower_bound
from hocket.sim.kernel_spans import timeline_of
from hocket.sim.lowering.lowered import Floats
from hocket.sim.lowering.sharded_step import ShardedStep
from hocket.sim.sharded_memory import sharded_need
from hocket.sim.step_runs import SimulatedStep, StepRuns, lower
from hocket.text import counted


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(Summarized):
    """A simulated run: its figures, each step's compute time, and a timeline if one was asked for.

    Attributes
    ----------
    row
        The figures, a :class:`hocket.ResultRow`; times in seconds.
    computes_s
        (iterations,): seconds that workers compute in each step, their mean; where steps overlap, from the
        end of the step before to the end of this one.
    timeline
        The step of median length, a :class:`hocket.Timeline`; None unless it was asked for.

    Examples
    --------
    >>> import hocket
    >>> graph, network = hocket.load_step("step.json"), hocket.Network(num_workers=4)
    >>> result = hocket.simulate(graph, hocket.plan(graph, network, "ddp"), network, iterations=5)
    >>> result.row.iteration_s >= result.row.bound_s
    True
    """

    row: ResultRow
    computes_s: Floats
    timeline: Timeline | None

    def _summary(self) -> ObjectSummary:
        headline, lines = self.row._summary()
        steps = len(self.computes_s)
        more = "" if self.timeline is None else "; the timeline is of the one of median length"
        return ObjectSummary(
            f"Result{headline.removeprefix('ResultRow')}",
            [*lines, ("simulated", f"{counted(steps, 'step')}{more}")],
        )


def simulate(
    graph: StepGraph,
    plan: Plan,
    network: Network,
    *,
    iterations: int = 20,
    seed: int = 0,
    random_order: bool = False,
    timeline: bool = False,
    clip: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Simulate synchronous steps of a job under a plan.

    Each step, each worker repeats one of the measured steps. Steps that overlap (AllReduce, a barrier per
    parameter) are measured from the end of one step's operations to the end of the next one's, and so is what
    they compute and reduce; others run before the first and after the last of them, so that none is special.
    Other steps start with everything at rest. Under a window (``network.window_bytes``) transfers of
    parameter servers line up as in section 3.2.2 of Li et al., "Throughput Prediction of Asynchronous SGD in
    TensorFlow" (ICPE 2020).

    Parameters
    ----------
    graph
        One worker's step.
    plan
        The plan: which parameters are transferred together, and in which order.
    network
        Links and costs, and the numbers of workers and servers.
    iterations
        Steps to measure, at least 1.
    seed
        Decides which measured step each worker repeats, and every other draw. :func:`hocket.predict` draws
        the same from it for steps that overlap, and its own where a barrier parts them.
    random_order
        Draw what a framework without order leaves to chance, too. With servers that is each worker's order of
        pulls, as in TensorFlow (Hashemi et al., "TicTac", SysML 2019, section 2.2); with AllReduce its order
        of operations (Hashemi et al., "Caramel", MLSys 2020, section 3.3).
    timeline
        Keep the step of median length as a :class:`hocket.Timeline`.
    clip
        Let the step clip its gradients by their norm (AllReduce), whether or not it was measured so: no
        update runs before the norm of all of them is known.
    progress
        Called with steps done and steps in all.

    Returns
    -------
    The run, a :class:`hocket.Result`: ``row`` has its figures.

    Raises
    ------
    FormatError
        When the plan does not fit the step.
    HocketError
        When the plan does not fit the network, the step sends nothing, ``iterations`` is below 1, or more
        memory is needed than is there.

    Examples
    --------
    >>> import hocket
    >>> graph, network = hocket.load_step("step.json"), hocket.Network(num_workers=4)
    >>> plan = hocket.plan(graph, network, "ddp")
    >>> result = hocket.simulate(graph, plan, network, iterations=5)
    >>> len(result.row.iterations_s)
    5
    """
    check_exchanges(graph, plan.architecture)
    check_iterations(iterations)
    started = time.perf_counter()
    if clip:
        graph = clipped_for(graph, plan.architecture)
    lowered = lower(graph, plan, network, shown=timeline)
    run = StepRuns(lowered, seed, random_order)
    # Where a step starts with everything at rest, pulls wait for no operation: one order keeps them together.
    lockstep = not random_order and (lowered.done_node < 0 or lowered.graph.num_samples == 1)
    halves = any(reduction.halves for reduction in plan.reductions)
    bound = lower_bound(lowered.graph, network, plan.architecture, plan.barrier, lockstep, halves)
    steps: list[SimulatedStep] = []
    for step in run.steps(iterations):
        steps.append(step)
        if progress is not None:
            progress(len(steps), iterations)
    seconds = np.array([step.end_s - step.start_s for step in steps])
    waits = np.array([step.wait_s for step in steps])
    compute_s = np.array([step.compute_s for step in steps])
    bound_s = float(np.mean([bound.of(step.samples) for step in steps]))
    iteration_s, compute = float(seconds.mean()), float(compute_s.mean())
    communication = lowered.communication_s
    occupied_s = lowered.occupied_apart_s if random_order else lowered.occupied_s
    bound_s = max(bound_s, occupied_s, compute + lowered.parse_s)
    if lowered.done_node >= 0:
        # Where steps overlap, limits are those of long runs: a few of these steps can take less time, and
        # nothing is busy for longer than that.
        compute = min(compute, iteration_s)
        communication = min(float(np.mean([step.communication_s for step in steps])), iteration_s)
        bound_s = min(max(bound_s, communication), iteration_s)
    assert bound_s <= iteration_s * (1 + 1e-9), "a bound above what was simulated is no bound"
    row = ResultRow(
        policy=plan.policy,
        model=graph.model,
        architecture=plan.architecture,
        workers=network.num_workers,
        servers=network.num_servers if plan.architecture == "ps" else 0,
        iteration_s=iteration_s,
        iteration_p95_s=float(np.percentile(seconds, 95)),
        straggler_fraction=float((waits / np.where(seconds > 0, seconds, 1.0)).mean()),
        compute_s=compute,
        communication_s=communication,
        rho=communication / compute if compute > 0 else 0.0,
        overlap=overlap_of(communication, compute, iteration_s) or 0.0,
        utilization=compute / iteration_s if iteration_s > 0 else 0.0,
        bound_s=bound_s,
        throughput=network.num_workers * graph.batch_size / iteration_s if iteration_s > 0 else 0.0,
        events=iterations * lowered.num_events(network.num_workers),
        wall_s=time.perf_counter() - started,
        iterations_s=tuple(seconds.tolist()),
        bucket_bytes=plan.bucket_bytes,
        memory_bytes=_memory_bytes(graph, plan, network),
    )
    if not timeline:
        return Result(row=row, computes_s=compute_s, timeline=None)
    median = int(np.argsort(seconds, kind="stable")[(iterations - 1) // 2])
    shown = timeline_of(lowered, network.num_workers, plan, *run.window(median, iterations))
    return Result(row=row, computes_s=compute_s, timeline=shown)


def _memory_bytes(graph: StepGraph, plan: Plan, network: Network) -> float | None:
    """The memory that a worker's device needs under a fully sharded plan; None under others."""
    if plan.architecture != "fsdp":
        return None
    step = ShardedStep.of(graph, network)
    return sharded_need(graph, step.schedule(plan), step.groups.shards).total_bytes


def check_iterations(iterations: int) -> None:
    """Refuse what is no number of steps to measure.

    Raises
    ------
    HocketError
        Naming the value and the rule.
    """
    if iterations < 1:
        raise HocketError(f"{iterations} iterations cannot be averaged; simulate at least 1")
