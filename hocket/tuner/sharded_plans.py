"""Fully sharded plans under a limit of memory, by the planners that judge by simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.graph.result import LEVEL
from hocket.network import Network
from hocket.planner.sharded.block_chain import BlockChain
from hocket.planner.sharded.fsdp_ibatch import UnitProgram
from hocket.planner.sharded.pieces import Pieces, UnitChoice, choice_of_units
from hocket.planner.sharded.simplefsdp import simplefsdp_choice
from hocket.planner.sharded.unit_baselines import a_unit_a_block
from hocket.planner.sharded.unit_memory import HeldLimits
from hocket.planner.sharded.unit_search import Cost, Judge, enumerate_all, is_enumerable, num_choices, search
from hocket.sim import simulate
from hocket.sim.bounds.sharded_bound import sharded_bound
from hocket.sim.sharded_evaluator import ShardedEvaluator
from hocket.sim.sharded_memory import most_within, unheld_bytes


@dataclass(frozen=True, kw_only=True)
class ShardedPlan:
    """A plan, whether it is proven the best, and how many were simulated for it."""

    plan: Plan
    status: Literal["", "optimal", "feasible"] = ""
    evaluations: int


class ShardedPlanners:
    """The planners of ``graph`` on ``network`` that keep to ``memory_bytes``, inf for no limit.

    ``pieces``: what units are made of, None for blocks by their names.
    """

    def __init__(
        self,
        graph: StepGraph,
        network: Network,
        memory_bytes: float = np.inf,
        pieces: Pieces | None = None,
    ) -> None:
        self._graph, self._network, self._limit = graph, network, memory_bytes
        self._evaluator = ShardedEvaluator(graph, network)
        self._frontier: list[tuple[float, float, Plan]] = []
        self._judge = Judge(graph, pieces or Pieces.of(graph), self.cost)

    def cost(self, plan: Plan) -> Cost:
        """Bytes beyond the limit, and seconds."""
        memory_bytes, seconds = self._evaluator.memory_bytes(plan), self._evaluator.seconds(plan)
        self._keep(memory_bytes, seconds, plan)
        return max(0.0, memory_bytes - self._limit), seconds

    def plan(self, choice: UnitChoice) -> Plan:
        """The plan of a choice of this planner's pieces."""
        return self._judge.plan(choice, "")

    def memory_bytes(self, plan: Plan) -> float:
        """The memory that a worker's device needs under ``plan``."""
        return self._evaluator.memory_bytes(plan)

    def _keep(self, memory_bytes: float, seconds: float, plan: Plan) -> None:
        """Keep ``plan`` for as long as no other takes as little of both."""
        kept = self._frontier
        if any(size <= memory_bytes and step_s * (1 - LEVEL) <= seconds for size, step_s, _ in kept):
            return
        self._frontier = [each for each in kept if each[0] < memory_bytes or each[1] < seconds]
        self._frontier.append((memory_bytes, seconds, plan))

    def frontier(self) -> list[Plan]:
        """Plans that were tried of which none takes less of both memory and the mean step's time."""
        return [plan for _, _, plan in self._frontier]

    def bound_s(self) -> float:
        """Seconds of a step that no plan within the limit beats: of parameters that it cannot keep, too."""
        step, graph = self._evaluator.step, self._evaluator.graph
        kept_bytes = self._limit - unheld_bytes(graph, step.groups.shards)
        shared_s, each_s = sharded_bound(graph, self._network, max(0.0, kept_bytes))
        return max(shared_s, float(each_s.max()))

    def simplefsdp(self) -> ShardedPlan:
        """SimpleFSDP's greedy units."""
        choice = simplefsdp_choice(self._evaluator.graph, self._network, self._judge)
        return ShardedPlan(
            plan=self._judge.plan(choice, "simplefsdp"), evaluations=self._evaluator.evaluations
        )

    def ibatch(self) -> ShardedPlan:
        """The best units of consecutive blocks, gathered one ahead and resharded.

        Raises
        ------
        HocketError
            When blocks do not follow one another.
        """
        choice = UnitChoice(cuts=(), forward=1, backward=1)
        if self._judge.pieces.blocks:
            choice = self._ibatch_choice(BlockChain.of(self._evaluator.graph, self._judge.pieces))
        return ShardedPlan(
            plan=self._judge.plan(choice, "fsdp-ibatch"), evaluations=self._evaluator.evaluations
        )

    def _ibatch_choice(self, chain: BlockChain) -> UnitChoice:
        step = self._evaluator.step
        finest = UnitChoice(cuts=a_unit_a_block(self._judge.pieces), forward=1, backward=1)
        # Larger units need no less than the finest ones.
        limit = max(self._limit, self._evaluator.memory_bytes(self._judge.plan(finest, "")))
        held = most_within(step.graph, step.groups.shards, limit)
        limits = HeldLimits(forward=held["forward"], backward=held["backward"])
        cuts = UnitProgram(chain, step.groups, limits, ahead=step.beside.ahead).cuts()
        assert cuts is not None, "the finest units are within the limits"
        best = replace(finest, cuts=cuts)
        # Of units that are as fast the finest need the least memory.
        is_as_fast = self._judge.cost(finest) <= _alike(self._judge.cost(best))
        return finest if is_as_fast else best

    def search(self, plans: Sequence[Plan], *, seed: int, budget_s: float) -> ShardedPlan:
        """The best that a search finds, or of ``plans`` where none is better."""
        known = [choice_of_units(self._judge.pieces, plan) for plan in plans]
        starts = [choice for choice in dict.fromkeys(known) if choice is not None]
        choice = search(self._judge, starts, seed=seed, budget_s=budget_s)
        return self._best(self._judge.plan(choice, "search"), plans, "search", self._drawn_cost(seed))

    def exact(self, plans: Sequence[Plan], *, seed: int, budget_s: float) -> ShardedPlan:
        """The best of all units of whole blocks, of what is kept, and of up to three ahead.

        By the mean step; one of ``plans`` that is faster with all measured steps goes before it, unproven.

        Raises
        ------
        HocketError
            When there are too many.
        """
        check_enumerable(self._graph)
        choice, is_whole = enumerate_all(self._judge, budget_s=budget_s)
        found = self._judge.plan(choice, "exact")
        best = self._best(found, plans, "exact", self._drawn_cost(seed))
        is_proven = is_whole and self.cost(best.plan) <= _alike(self.cost(found))
        return ShardedPlan(
            plan=best.plan, status="optimal" if is_proven else "feasible", evaluations=best.evaluations
        )

    def _drawn_cost(self, seed: int) -> Callable[[Plan], Cost]:
        """The cost with all measured steps, whose slowest rank each collective waits for."""
        if self._graph.num_samples == 1:
            return self.cost

        def cost(plan: Plan) -> Cost:
            beyond, _ = self.cost(plan)
            return beyond, simulate(self._graph, plan, self._network, seed=seed).row.iteration_s

        return cost

    def _best(
        self, found: Plan, plans: Sequence[Plan], policy: str, cost: Callable[[Plan], Cost]
    ) -> ShardedPlan:
        best = min([found, *plans], key=cost)
        renamed = msgspec.structs.replace(best, policy=policy, predicted=None)
        return ShardedPlan(plan=renamed, evaluations=self._evaluator.evaluations)


def _alike(cost: Cost) -> Cost:
    """The most that counts as this cost: seconds are sums in another order."""
    return cost[0], cost[1] * (1 + 1e-9)


def check_enumerable(graph: StepGraph) -> None:
    """Refuse a step whose units are too many to judge all choices."""
    blocks = len(Pieces.of(graph).blocks)
    if not is_enumerable(blocks):
        raise HocketError(
            f"{blocks} blocks leave {num_choices(blocks):.3g} choices, too many for the exact planner; search"
        )
