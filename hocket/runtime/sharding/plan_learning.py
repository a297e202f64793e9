"""From torch's own units to a plan: profile the first steps, plan, change what can be, keep the rest.

A generator that is resumed after each step. Every rank runs it at the same step, so it may talk to the
others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Protocol

import msgspec
import numpy as np
import torch

from hocket.errors import HocketError
from hocket.graph import Phase, Plan, StepGraph
from hocket.graph.io import plan_document, plan_from_document
from hocket.network import Network
from hocket.runtime.sharding.kept_plan import PlanMemory
from hocket.runtime.sharding.module_units import modules_of_units
from hocket.runtime.sharding.seen_exchanges import seen_exchanges
from hocket.runtime.sharding.shard_choice import ShardChoice
from hocket.runtime.sharding.sharded_model import ShardedModel
from hocket.runtime.sharding.share_costs import measured_halves
from hocket.runtime.sharding.unit_profile import graph_of
from hocket.runtime.transfers.allreduce_cost import ReductionMeasurement
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_value

_AUTO = "auto"  # the policy that chooses among others
_PROFILED_STEPS = 6  # the first of all sets things up, and does not count


class ShardPlanner(Protocol):
    """The interface of a planner of sharded steps."""

    @property
    def policy(self) -> str:
        """The name of what it plans by."""

    def plans(self, graph: StepGraph, network: Network, own: Plan) -> tuple[Plan, Plan]:
        """The best plan with the units of ``own``, and the best of all; called on rank 0 alone.

        Raises
        ------
        HocketError
            Where there are none.
        """


class _Made(msgspec.Struct):
    """Rank 0's answer: plans as documents, none where ``failure`` says why."""

    plans: list[dict[str, object]]
    failure: str = ""


class PlanLearning:
    """The way of ``sharded`` to its plan, by ``planner``'s, which ``memory`` keeps."""

    def __init__(
        self, sharded: ShardedModel, choice: ShardChoice, planner: ShardPlanner, memory: PlanMemory
    ) -> None:
        self._sharded, self._choice, self._planner, self._memory = sharded, choice, planner, memory

    def run(self, control: GlooGroup, transfers: GlooGroup) -> Generator[None, None, None]:
        """Bring a plan into force; begun before the first step, and resumed after each.

        Ranks talk by ``control``, and measure the network on ``transfers``.
        """
        choice, sharded = self._choice, self._sharded
        choice.phase = "profiling"
        for _ in range(_PROFILED_STEPS):
            yield
        if choice.network is None:
            choice.network = _measured(transfers, control, sharded)
        choice.graph = graph_of(sharded.events.last, sharded.model, choice.plan, choice.ranks)
        made = broadcast_value(self._made() if control.rank == 0 else _Made([]), control, _Made)
        if made.failure:
            choice.settle(f"no other could be made: {made.failure}")
            return
        now, best = (plan_from_document(document, "the plan") for document in made.plans)
        sharded.change(now)
        choice.plan = now
        if now.units != best.units:
            choice.next_plan = best
        self._memory.keep(best, _compute_s(choice.graph, choice.ranks))
        choice.settle(self._why(now.units == best.units))

    def _why(self, same_units: bool) -> str:
        """The reason why the plan in force stays."""
        if self._planner.policy != _AUTO:
            asked = f"policy '{self._planner.policy}' was asked for"
            return asked if same_units else f"{asked}, and has other units"
        of_its_units = "" if same_units else " of its units"
        return f"it is the best that was found{of_its_units}, for the step as it was profiled"

    def _made(self) -> _Made:
        choice = self._choice
        if choice.graph is None or choice.network is None:
            return _Made([], "no two steps did the same")
        try:
            plans = self._planner.plans(choice.graph, choice.network, choice.plan)
            modules_of_units(self._sharded.model, plans[1].units)  # the next run could not shard others
        except HocketError as error:
            return _Made([], str(error))
        ranked = [msgspec.structs.replace(plan, workers=choice.ranks) for plan in plans]
        return _Made([plan_document(plan) for plan in ranked])


def _measured(transfers: GlooGroup, control: GlooGroup, sharded: ShardedModel) -> Network:
    """The network by collectives of a few sizes, measured between two steps."""
    pieces = ReductionMeasurement(transfers, control, torch.zeros(1)).pieces()
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            network: Network = end.value[0]
            break
    assert network.reduction is not None
    # On the group of the training itself, whose threads and connections these are; nothing is under way.
    halves = measured_halves(sharded.mesh.get_group(), sharded.largest_unit_bytes)
    assert halves.exchange is not None
    exchange = seen_exchanges(halves.exchange, sharded.events.last, control)
    halves = dataclasses.replace(halves, exchange=exchange)
    return dataclasses.replace(network, reduction=dataclasses.replace(network.reduction, halves=halves))


def _compute_s(graph: StepGraph | None, ranks: int) -> float:
    """Seconds that a rank computes in a step, of which updates are of its shards."""
    if graph is None:
        return 0.0
    parts = np.where(graph.phases == Phase.UPDATE, 1 / ranks, 1.0)
    return float(graph.typical().durations_s[:, 0] @ parts)


def of_ranks(network: Network, ranks: int) -> Network:
    """``network`` for this job's ranks."""
    return dataclasses.replace(network, num_workers=ranks)
