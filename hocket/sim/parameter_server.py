"""Run a plan on a simulated parameter-server job: step times, overlap, and where the limit is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.errors import HocketError
from hocket.graph import Plan, ResultRow, StepGraph, Timeline
from hocket.graph.result import overlap_of
from hocket.network import Network
from hocket.sim import _kernel
from hocket.sim.bound import bounds
from hocket.sim.lower import Lowered, lower
from hocket.sim.spans import timeline_of

Floats = npt.NDArray[np.float64]


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
    """Simulate ``iterations`` synchronous steps with a barrier after each.

    Each step, each worker repeats one of the measured steps, drawn with ``seed``; ``random_order`` also
    draws the order of its pulls (TensorFlow's behaviour, TicTac section 2.2). ``progress`` is called with
    steps done and steps in all.

    Raises
    ------
    FormatError, HocketError
        When the plan does not fit the step or the network, or ``iterations`` is not positive.
    """
    if iterations < 1:
        raise HocketError(f"{iterations} iterations cannot be averaged; simulate at least 1")
    started = time.perf_counter()
    run = _Run(lower(graph, plan, network), seed, random_order)
    ends = np.empty(iterations)
    waits = np.empty(iterations)
    bound_s = np.empty(iterations)
    compute_s = np.empty(iterations)
    for k in range(iterations):
        samples = run.step(k)
        ends[k] = run.end.max(initial=0.0)
        finished = run.worker_ends()
        waits[k] = (finished.max() - finished.min()) / ends[k] if ends[k] > 0 else 0.0
        bound_s[k] = max(run.shared_bound_s, run.worker_bounds_s[samples].max())
        compute_s[k] = run.compute_s[samples].mean()
        if progress is not None:
            progress(k + 1, iterations)

    assert (bound_s <= ends * (1 + 1e-9)).all(), "a bound above a step that was simulated is no bound"
    iteration_s, compute = float(ends.mean()), float(compute_s.mean())
    communication = sum(run.lowered.ways_s())
    row = ResultRow(
        policy=plan.policy,
        model=graph.model,
        architecture=plan.architecture,
        workers=network.num_workers,
        servers=network.num_servers,
        iteration_s=iteration_s,
        iteration_p95_s=float(np.percentile(ends, 95)),
        straggler_fraction=float(waits.mean()),
        compute_s=compute,
        communication_s=communication,
        rho=communication / compute if compute > 0 else 0.0,
        overlap=overlap_of(communication, compute, iteration_s) or 0.0,
        utilization=compute / iteration_s if iteration_s > 0 else 0.0,
        bound_s=float(np.minimum(bound_s, ends).mean()),
        throughput=network.num_workers * graph.batch_size / iteration_s if iteration_s > 0 else 0.0,
        events=iterations * len(run.end),
        wall_s=time.perf_counter() - started,
        iterations_s=tuple(ends.tolist()),
    )
    if not timeline:
        return Result(row=row, computes_s=compute_s, timeline=None)
    median = int(np.argsort(ends, kind="stable")[(iterations - 1) // 2])
    run.step(median)
    shown = timeline_of(run.lowered, plan, run.start, run.end)
    return Result(row=row, computes_s=compute_s, timeline=shown)


class _Run:
    """A lowered step with its random draws; each step overwrites ``start`` and ``end`` (W * L + u,)."""

    def __init__(self, lowered: Lowered, seed: int, random_order: bool) -> None:
        graph, network = lowered.graph, lowered.network
        self.lowered = lowered
        self._seed, self._random_order = seed, random_order
        self._durations = np.ascontiguousarray(graph.durations_s[lowered.worker_ops].T)
        self._server_durations = np.ascontiguousarray(graph.durations_s[lowered.server_ops].T)
        self.compute_s = self._durations.sum(axis=1)
        least = self._server_durations.min(axis=0)
        self.shared_bound_s, self.worker_bounds_s = bounds(lowered, self._durations, least)
        num_items = network.num_workers * len(lowered.program.waits) + len(lowered.server_ops)
        self.start, self.end = np.empty(num_items), np.empty(num_items)

    def draw(self, k: int) -> tuple[npt.NDArray[np.int64], int]:
        """Which measured step each worker repeats in step k, shape (W,), and which one the servers do."""
        samples = self._generator(k).integers(len(self._durations), size=self.lowered.network.num_workers + 1)
        return samples[:-1], int(samples[-1])

    def step(self, k: int) -> npt.NDArray[np.int64]:
        """Simulate step k, the same each time; return the measured step that each worker repeats, (W,)."""
        network, pulls = self.lowered.network, self.lowered.pulls
        samples, server_sample = self.draw(k)
        pull_keys = np.arange(pulls.num_parts)[None, :]
        if self._random_order:
            orders = self._generator(k).spawn(network.num_workers)
            drawn = np.array([order.permutation(pulls.of_batch.num_rows) for order in orders])
            pull_keys = drawn[:, pulls.batch]
        completed = _kernel.run(
            self.lowered.program,
            self._durations,
            samples,
            self._server_durations[server_sample],
            pull_keys,
            network.num_servers,
            network.bandwidth_bps,
            network.startup_s,
            self.start,
            self.end,
        )
        assert completed == len(self.end), "a plan that passed its checks cannot deadlock"
        return samples

    def _generator(self, k: int) -> np.random.Generator:
        return np.random.default_rng((self._seed, k))

    def worker_ends(self) -> Floats:
        """When each worker's last operation or transfer ended, shape (W,)."""
        num_workers, num_local = self.lowered.network.num_workers, len(self.lowered.program.waits)
        ends: Floats = self.end[: num_workers * num_local].reshape(num_workers, num_local).max(axis=1)
        return ends
