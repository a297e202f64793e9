"""A search from known plans, set up for the step and checked by simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import FlatPlan, plan_of
from hocket.kernel import clock_s
from hocket.network import Network
from hocket.planner import Architecture, Barrier
from hocket.planner.p3 import SLICE_BYTES
from hocket.planner.search import SearchEnd, climb
from hocket.planner.search_starts import starts
from hocket.sim import simulate
from hocket.sim.bounds.lower_bound import lower_bound
from hocket.sim.evaluator import PlanEvaluator
from hocket.sim.lowering.slices import slice_graph

_SLICES_BYTES = (SLICE_BYTES, 1_000_000, 250_000)
# More slices than this make a simulation too slow to be asked thousands of times.
_MOST_SLICES = 600
# The share of the budget after which no more starts are looked at.
_FOR_STARTS = 0.3


@dataclass(frozen=True, kw_only=True)
class Improved:
    """The best plan, and how many were judged for it."""

    plan: Plan
    evaluations: int


@dataclass(frozen=True, kw_only=True)
class SearchChoices:
    """The freedom of a search beside orders and batches.

    ``barrier``: of parameter servers; None: the better one; ``halves``: reductions may go in halves.
    """

    barrier: Barrier | None = None
    halves: bool = False


def improve(
    graph: StepGraph,
    network: Network,
    plans: Sequence[Plan],
    *,
    choices: SearchChoices,
    seed: int,
    budget_s: float,
    progress: Callable[[str, float, float], None] | None = None,
) -> Improved:
    """Search from ``plans`` (at least one), all of one architecture, for ``budget_s`` seconds.

    What compiling kernels takes, once on a machine, comes on top of that.
    With parameter servers, first the barrier (unless it is given) and the size of slices are chosen: those of
    the best start. The search judges by the mean of the measured steps. The plan
    that it finds, the same without a strict compute order, and ``plans`` are then simulated with all measured
    steps, as :func:`hocket.sim.simulate` does, and the fastest is returned; that comes on top of the budget.
    ``progress`` is called with what is being done, and how much of how much: seconds, then plans.
    """
    architecture = plans[0].architecture
    assert architecture != "fsdp", "which has a search of its own"
    began, tell = clock_s(), progress or (lambda what, done, total: None)
    alike = " if all steps were alike" if graph.num_samples > 1 else ""
    mean = dataclasses.replace(graph, durations_s=graph.durations_s.mean(axis=1, keepdims=True))
    best: tuple[float, PlanEvaluator, FlatPlan] | None = None
    evaluations = 0
    for choice, chunks in _barriers_and_chunks(graph, network, architecture, choices.barrier):
        evaluator = PlanEvaluator(mean, network, architecture, choice, chunks, choices.halves)
        # The search moves whole gradients; plans that slice them are compared with at the end.
        whole = [made for made in plans if all(r.slice is None for r in made.reductions)]
        known = [msgspec.structs.replace(made, barrier=choice) for made in whole]
        for flat in starts(mean, network, known, chunks, choices.halves):
            if best is not None and clock_s() - began > _FOR_STARTS * budget_s:
                break
            seconds = evaluator.seconds(flat, steady=True)
            evaluations += 1
            if best is None or seconds < best[0]:
                best = seconds, evaluator, flat
    assert best is not None, "there is a setting, and a start for every plan"
    _, evaluator, start = best
    cut, _ = slice_graph(mean, evaluator.chunks)
    architecture, barrier = evaluator.architecture, evaluator.barrier
    bound = lower_bound(cut, network, architecture, barrier, lockstep=True, halves=choices.halves)
    found = climb(
        graph,
        network,
        evaluator,
        [start],
        SearchEnd(
            budget_s=max(0.0, budget_s - (clock_s() - began)),
            bound_s=max(bound.shared, float(bound.each.max())),
        ),
        seed=seed,
        progress=lambda spent_s, best_s: tell(
            f"search ({best_s:.4g} s{alike}), for at most {budget_s:g} s", spent_s, budget_s
        ),
    )
    candidates = [found.plan, plan_of(start, graph, "search"), *plans]
    if graph.num_samples > 1:
        candidates.insert(1, msgspec.structs.replace(found.plan, compute_order=None))
    checked_s = []
    for k, plan in enumerate(candidates):
        tell(f"simulating the search's plan beside others, {k + 1} of {len(candidates)}", k, len(candidates))
        checked_s.append(simulate(graph, plan, network, seed=seed).row.iteration_s)
    plan = msgspec.structs.replace(candidates[int(np.argmin(checked_s))], policy="search")
    return Improved(plan=plan, evaluations=evaluations + found.evaluations)


def _barriers_and_chunks(
    graph: StepGraph, network: Network, architecture: Architecture, barrier: Barrier | None
) -> Iterator[tuple[Barrier, Indices]]:
    """Barriers and chunks (p,) to choose from, whole parameters first."""
    whole = np.ones(graph.num_parameters, np.int64)
    if architecture == "allreduce":
        yield "step", whole
        return
    for choice in ("step", "parameter") if barrier is None else (barrier,):
        yield choice, whole
        if choice == "step" and network.num_servers == 1:
            continue  # slices balance servers, and let an exchange overlap with the next step's
        for size in _SLICES_BYTES:
            chunks = np.maximum(1, -(-graph.parameter_bytes // size))
            if whole.sum() < chunks.sum() <= max(_MOST_SLICES, graph.num_parameters):
                yield choice, chunks
