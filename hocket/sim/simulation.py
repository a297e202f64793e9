"""Run a plan on a simulated job: step times, overlap, and where the limit is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.errors import HocketError
from hocket.graph import Plan, ResultRow, StepGraph, Timeline, check_plan
from hocket.graph.csr import Indices
from hocket.graph.result import overlap_of
from hocket.network import Network
from hocket.sim import _kernel
from hocket.sim.allreduce import lower_reduced_step, reduced_step
from hocket.sim.bound import lower_bound
from hocket.sim.lowered import Floats, Lowered
from hocket.sim.parameter_server import lower_server_step, server_step
from hocket.sim.slices import sliced
from hocket.sim.spans import timeline_of

# Overlapping steps settle into their rhythm before they are measured, and the last ones, which nothing
# follows, are left out.
_WARM_UP_STEPS = 8
_COOL_DOWN_STEPS = 2
# Overlapping steps are simulated in one go, up to this many items at a time.
_LARGEST_RUN = 20_000_000


@dataclass(frozen=True, kw_only=True)
class Result:
    """What :func:`simulate` found.

    ``row``: the figures. ``computes_s`` (iterations,): each step's compute time, the mean over workers.
    ``timeline``: the step of median length, if it was asked for.
    """

    row: ResultRow
    computes_s: Floats
    timeline: Timeline | None


def simulate(
    graph: StepGraph,
    plan: Plan,
    network: Network,
    *,
    iterations: int = 20,
    seed: int = 0,
    random_order: bool = False,
    timeline: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Simulate ``iterations`` synchronous steps.

    Each step, each worker repeats one of the measured steps, drawn with ``seed``; ``random_order`` also
    draws what a framework without order leaves to chance: each worker's order of pulls (TensorFlow's
    behaviour, TicTac section 2.2), for AllReduce its order of operations (Caramel section 3.3). Steps that
    overlap (AllReduce, a barrier per parameter) are measured in their steady state, from the end of one
    step's operations to the end of the next one's. ``progress`` is called with steps done and steps in all.

    Raises
    ------
    FormatError, HocketError
        When the plan does not fit the step or the network, or ``iterations`` is not positive.
    """
    if iterations < 1:
        raise HocketError(f"{iterations} iterations cannot be averaged; simulate at least 1")
    started = time.perf_counter()
    lowered = lower(graph, plan, network)
    run = _Run(lowered, seed, random_order)
    alike = lowered.graph.num_samples == 1 and not random_order
    bound = lower_bound(lowered.graph, network, plan.architecture, plan.barrier, alike)
    steps: list[Step] = []
    for step in run.steps(iterations):
        steps.append(step)
        if progress is not None:
            progress(len(steps), iterations)
    seconds = np.array([step.end_s - step.start_s for step in steps])
    waits = np.array([step.wait_s for step in steps])
    compute_s = np.array([run.compute_s[step.samples].mean() for step in steps])
    bound_s = float(np.mean([bound.of(step.samples) for step in steps]))
    iteration_s, compute = float(seconds.mean()), float(compute_s.mean())
    communication = lowered.communication_s
    bound_s = max(bound_s, lowered.occupied_s, compute)
    if lowered.done >= 0:
        # Where steps overlap the limit is one of long runs; a few of them can fall below it.
        bound_s = min(bound_s, iteration_s)
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
    )
    if not timeline:
        return Result(row=row, computes_s=compute_s, timeline=None)
    median = int(np.argsort(seconds, kind="stable")[(iterations - 1) // 2])
    shown = timeline_of(lowered, network.num_workers, plan, *run.window(median, iterations))
    return Result(row=row, computes_s=compute_s, timeline=shown)


def lower(graph: StepGraph, plan: Plan, network: Network) -> Lowered:
    """Lower ``plan`` for all workers of ``network``.

    Raises
    ------
    FormatError, HocketError
        When the plan does not fit the step, or there are too many servers.
    """
    check_plan(plan, graph)
    if plan.architecture == "allreduce":
        return lower_reduced_step(reduced_step(graph, network), plan, network.num_workers)
    cut, cut_plan = sliced(graph, plan)
    step = server_step(cut, network, overlapping=plan.barrier == "parameter")
    return lower_server_step(step, cut_plan, network.num_workers)


@dataclass(frozen=True)
class Step:
    """One simulated step: its window, the wait of its first worker for its last, and what was drawn."""

    start_s: float
    end_s: float
    wait_s: float
    samples: Indices


class _Run:
    """A lowered step with its random draws; ``start`` and ``end`` hold the items of the last run."""

    def __init__(self, lowered: Lowered, seed: int, random_order: bool) -> None:
        self._lowered = lowered
        self._seed, self._random_order = seed, random_order
        self._workers = lowered.network.num_workers
        self._items = lowered.num_items(self._workers)
        self.compute_s = lowered.durations_s.sum(axis=1)
        self.start, self.end = np.empty(0), np.empty(0)

    def steps(self, iterations: int) -> Iterator[Step]:
        """The measured steps, one after the other."""
        if self._lowered.done < 0:
            for k in range(iterations):
                samples = self._simulate(k, 1)[0]
                ends = self._worker_ends()
                yield Step(0.0, float(self.end.max(initial=0.0)), float(ends.max() - ends.min()), samples)
            return
        for first, count in self._blocks(iterations):
            drawn = self._simulate(first, _WARM_UP_STEPS + count + _COOL_DOWN_STEPS)
            done = self._done()
            for k in range(_WARM_UP_STEPS, _WARM_UP_STEPS + count):
                before, ends = done[k - 1].max(), done[k]
                yield Step(float(before), float(ends.max()), float(ends.max() - ends.min()), drawn[k])

    def window(self, k: int, iterations: int) -> tuple[Floats, Floats, float, float]:
        """Start and end of every item (steps, S) that measured step k may show, and the step's own window."""
        if self._lowered.done < 0:
            self._simulate(k, 1)
            return self.start[None, :], self.end[None, :], 0.0, float(self.end.max(initial=0.0))
        first, count = next((f, c) for f, c in self._blocks(iterations) if f <= k < f + c)
        self._simulate(first, _WARM_UP_STEPS + count + _COOL_DOWN_STEPS)
        done = self._done().max(axis=1)
        here = _WARM_UP_STEPS + k - first
        shape = (-1, self._items)
        return self.start.reshape(shape), self.end.reshape(shape), float(done[here - 1]), float(done[here])

    def _blocks(self, iterations: int) -> Iterator[tuple[int, int]]:
        size = max(1, min(iterations, _LARGEST_RUN // self._items - _WARM_UP_STEPS - _COOL_DOWN_STEPS))
        for first in range(0, iterations, size):
            yield first, min(size, iterations - first)

    def draw(self, k: int) -> tuple[Indices, int]:
        """Which measured step each worker repeats in step k, shape (W,), and which one the servers do."""
        samples = self._generator(k).integers(len(self._lowered.durations_s), size=self._workers + 1)
        return samples[:-1], int(samples[-1])

    def _simulate(self, first: int, count: int) -> Indices:
        """Simulate ``count`` steps with the draws from ``first`` on; the measured steps drawn, (count, W)."""
        lowered, network = self._lowered, self._lowered.network
        draws = [self.draw(k) for k in range(first, first + count)]
        samples = np.array([drawn for drawn, _ in draws])
        global_rows = len(lowered.global_durations_s)
        global_samples = np.array([sample % global_rows for _, sample in draws])
        self.start, self.end = np.empty(count * self._items), np.empty(count * self._items)
        completed = _kernel.run(
            lowered.program,
            self._keys(first, count),
            lowered.durations_s,
            samples,
            lowered.global_durations_s,
            global_samples,
            network.bandwidth_bps,
            network.startup_s,
            1,
            np.inf,
            self.start,
            self.end,
        )
        assert completed == len(self.end), "a plan that passed its checks cannot deadlock"
        return samples

    def _keys(self, first: int, count: int) -> Indices:
        lowered = self._lowered
        if not self._random_order or not len(lowered.drawn):
            return lowered.preference[None, :]
        keys = np.repeat(lowered.preference[None, :], count * self._workers, axis=0)
        groups = int(lowered.drawn_group.max()) + 1
        row = 0
        for k in range(first, first + count):
            for worker in self._generator(k).spawn(self._workers):
                keys[row, lowered.drawn] = worker.permutation(groups)[lowered.drawn_group]
                row += 1
        return keys

    def _generator(self, k: int) -> np.random.Generator:
        return np.random.default_rng((self._seed, k))

    def _worker_ends(self) -> Floats:
        """When each worker's last operation or transfer of a single step ended, shape (W,)."""
        own = self.end[self._lowered.program.num_globals :].reshape(self._workers, -1)
        ends: npt.NDArray[np.float64] = own.max(axis=1)
        return ends

    def _done(self) -> Floats:
        """When each worker was done with each step, shape (steps, W)."""
        per_worker = self._lowered.num_locals
        steps = self.end.reshape(-1, self._items)
        return steps[:, self._lowered.done + per_worker * np.arange(self._workers)]
