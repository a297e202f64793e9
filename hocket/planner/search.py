"""Search: a better plan for any step, with the simulator as judge, for as long as one likes to wait.

Late acceptance hill climbing (Burke and Bykov 2017) over the orders of transfers, where batches are cut, the
windows, halves and chunks of reductions, and which of two ready operations a processor takes first. It starts
from the best of the plans it is given and of those that :func:`hocket.planner.search_starts.starts` makes of
them, and it never returns anything worse. It stops early where the bound says that nothing better exists.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import FlatPlan, Transfers
from hocket.network import Network

_HISTORY = 200  # how many evaluations back a plan must be beaten to be accepted
_PATIENCE = 4000  # evaluations without a better plan before the climb starts over from the best
_MOST_CHUNKS = 8
# A plan this close to its bound is as good as optimal: measured durations vary by far more.
_CLOSE = 1 + 1e-3


class Evaluator(Protocol):
    """The interface of a simulator that a search asks; :class:`hocket.sim.evaluator.PlanEvaluator` is one."""

    chunks: Indices
    halves: bool

    def seconds(self, flat: FlatPlan, *, steady: bool = False) -> float:
        """A step under ``flat``; ``steady``: steps that overlap have reached their rhythm."""

    def plan(self, flat: FlatPlan, policy: str) -> Plan:
        """``flat`` as a plan."""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best plan found, how long its step takes, and what that took: evaluations and seconds."""

    plan: Plan
    iteration_s: float
    evaluations: int
    wall_s: float


@dataclass(frozen=True, kw_only=True)
class SearchEnd:
    """The end of a search: whichever of these comes first.

    Attributes
    ----------
    budget_s : seconds since its beginning.
    bound_s : seconds of a step, proven to be the least or 0; the search ends when a plan is as good.
    max_evaluations : simulated plans; where they end the search its result depends on the seed alone.
    """

    budget_s: float = 10.0
    bound_s: float = 0.0
    max_evaluations: float = math.inf


def climb(
    graph: StepGraph,
    network: Network,
    evaluator: Evaluator,
    starts: Sequence[FlatPlan],
    end: SearchEnd,
    *,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
) -> SearchResult:
    """Improve the best of ``starts`` (at least one) until ``end``.

    ``progress`` is called with seconds spent and the best step so far.
    """
    began = time.perf_counter()
    budget_s, limit, close_s = end.budget_s, end.max_evaluations, end.bound_s * _CLOSE
    judged = [(evaluator.seconds(flat, steady=True), k) for k, flat in enumerate(starts)]
    best_s, k = min(judged)
    best, evaluations = starts[k], len(starts)
    mutate = Mutations(graph, network, evaluator, best, np.random.default_rng(seed))

    while not (time.perf_counter() - began > budget_s or evaluations >= limit or best_s <= close_s):
        # Early figures rank neighbours; only a steady one can become the best.
        current = best
        current_s = evaluator.seconds(best)
        history = [current_s] * _HISTORY
        early_best_s = current_s
        since = 0
        while since < _PATIENCE and evaluations < limit and time.perf_counter() - began <= budget_s:
            candidate = mutate(current)
            candidate_s = evaluator.seconds(candidate)
            evaluations += 1
            since += 1
            if candidate_s <= current_s or candidate_s <= history[evaluations % _HISTORY]:
                current, current_s = candidate, candidate_s
            history[evaluations % _HISTORY] = current_s
            if candidate_s < early_best_s:
                early_best_s, since = candidate_s, 0
                steady_s = evaluator.seconds(candidate, steady=True)
                evaluations += 1
                if steady_s < best_s:
                    best, best_s = candidate, steady_s
                    if best_s <= close_s:
                        break
            if progress is not None and evaluations % 100 == 0:
                progress(time.perf_counter() - began, best_s)
    return SearchResult(
        plan=evaluator.plan(best, "search"),
        iteration_s=best_s,
        evaluations=evaluations,
        wall_s=time.perf_counter() - began,
    )


class Mutations:
    """Neighbours of a plan: one thing moved, cut, joined or placed differently."""

    def __init__(
        self,
        graph: StepGraph,
        network: Network,
        evaluator: Evaluator,
        flat: FlatPlan,
        rng: np.random.Generator,
    ) -> None:
        self._rng = rng
        self._chunks = evaluator.chunks
        costly = network.startup_s > 0 or network.parse_s > 0
        moves: list[tuple[Callable[[FlatPlan], FlatPlan], float]] = [(self._hurry_operation, 3.0)]
        if len(flat.pulls.order) > 1:
            moves.append((self._move_pull, 3.0))
            if costly:
                moves.append((self._recut_pulls, 2.0))
        if len(flat.gradients.order) > 1:
            moves.append((self._move_gradient, 3.0))
            if costly:
                moves.append((self._recut_gradients, 2.0))
        if flat.architecture == "allreduce" and len(flat.gradients.order):
            moves.append((self._switch_window, 1.0))
            if evaluator.halves:
                moves.append((self._switch_halves, 2.0))
            if network.parse_s_per_byte > 0:
                moves.append((self._change_chunks, 1.0))
        self._moves = [move for move, _ in moves]
        self._until = np.cumsum([weight for _, weight in moves])
        self._num_operations = graph.num_operations

    def __call__(self, flat: FlatPlan) -> FlatPlan:
        """A random neighbour of ``flat``."""
        drawn = self._rng.random() * self._until[-1]
        return self._moves[int(np.searchsorted(self._until, drawn, side="right"))](flat)

    def _two_places(self, count: int) -> tuple[int, int]:
        """A place and another one, more often near than far."""
        source = int(self._rng.integers(count))
        reach = max(1, int(count ** self._rng.random()))
        target = source + int(self._rng.integers(1, reach + 1)) * (1 if self._rng.random() < 0.5 else -1)
        return source, min(max(target, 0), count - 1)

    def _hurry_operation(self, flat: FlatPlan) -> FlatPlan:
        source, target = self._two_places(self._num_operations)
        rank, low, high = flat.rank.copy(), min(source, target), max(source, target)
        between = (rank >= low) & (rank <= high) & (rank != source)
        moved = rank == source
        rank[between] += 1 if target < source else -1
        rank[moved] = target
        return replace(flat, rank=rank)

    def _move_pull(self, flat: FlatPlan) -> FlatPlan:
        return replace(flat, pulls=self._move_order(flat.pulls))

    def _move_gradient(self, flat: FlatPlan) -> FlatPlan:
        return replace(flat, gradients=self._move_order(flat.gradients))

    def _recut_pulls(self, flat: FlatPlan) -> FlatPlan:
        return replace(flat, pulls=self._recut(flat.pulls))

    def _recut_gradients(self, flat: FlatPlan) -> FlatPlan:
        return replace(flat, gradients=self._recut(flat.gradients))

    def _move_order(self, transfers: Transfers) -> Transfers:
        """One whole transfer, or one parameter into the transfer at another place."""
        if self._rng.random() < 0.5 or transfers.starts.all():
            first = transfers.first
            source, target = self._two_places(len(first) - 1)
            if source == target:
                return transfers
            places = np.delete(np.arange(len(first) - 1), source)
            runs = np.insert(places, target, source)
            take = np.concatenate([np.arange(first[r], first[r + 1]) for r in runs])
            return _take(transfers, take)
        source, target = self._two_places(len(transfers.order))
        take = np.insert(np.delete(np.arange(len(transfers.order)), source), target, source)
        # The parameter changes places, cuts stay where they are.
        moved = replace(transfers, order=transfers.order[take])
        return self._valid(moved)

    def _recut(self, transfers: Transfers) -> Transfers:
        """Begin a transfer somewhere, or let it continue the one before."""
        starts = transfers.starts.copy()
        place = int(self._rng.integers(1, len(starts)))
        starts[place] = not starts[place]
        return self._valid(replace(transfers, starts=starts))

    def _valid(self, transfers: Transfers) -> Transfers:
        """A parameter keeps its slices wherever it goes, and travels alone if there are several."""
        if self._chunks.max(initial=1) == 1:
            return transfers
        chunks = self._chunks[transfers.order]
        starts = transfers.starts | (chunks > 1)
        starts[1:] |= chunks[:-1] > 1
        return replace(transfers, starts=starts, chunks=chunks)

    def _switch_window(self, flat: FlatPlan) -> FlatPlan:
        forward = flat.gradients.forward.copy()
        place = int(self._rng.integers(len(forward)))
        forward[place] = not forward[place]
        return replace(flat, gradients=replace(flat.gradients, forward=forward))

    def _switch_halves(self, flat: FlatPlan) -> FlatPlan:
        halves, first = flat.gradients.halves.copy(), flat.gradients.first
        start = first[int(self._rng.integers(len(first) - 1))]
        halves[start] = not halves[start]
        return replace(flat, gradients=replace(flat.gradients, halves=halves))

    def _change_chunks(self, flat: FlatPlan) -> FlatPlan:
        chunks = flat.gradients.chunks.copy()
        chunks[int(self._rng.integers(len(chunks)))] = int(self._rng.integers(1, _MOST_CHUNKS + 1))
        return replace(flat, gradients=replace(flat.gradients, chunks=chunks))


def _take(transfers: Transfers, take: Indices) -> Transfers:
    return Transfers(
        order=transfers.order[take],
        starts=transfers.starts[take],
        chunks=transfers.chunks[take],
        forward=transfers.forward[take],
        halves=transfers.halves[take],
    )
