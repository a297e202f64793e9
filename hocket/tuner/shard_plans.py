"""Plans that fully sharded training chooses by simulation, under a limit of memory of its own."""

from __future__ import annotations

import msgspec

from hocket.graph import Plan, StepGraph, check_plan
from hocket.network import Network
from hocket.planner.sharded.block_chain import is_chain
from hocket.planner.sharded.pieces import Pieces, UnitChoice
from hocket.planner.sharded.unit_baselines import a_unit_a_block
from hocket.planner.sharded.unit_search import Cost
from hocket.sim.sharded_evaluator import ShardedEvaluator
from hocket.sim.sharded_memory import need_of_held
from hocket.tuner.sharded_plans import ShardedPlanners

MOST_HELD = 2.0
"""Times what torch's own plan holds at once beside shards, which a plan may hold."""
_MOST_AHEAD = 3
_BUDGET_S = 2.0
_ALIKE = 1.01


def best_plans(graph: StepGraph, network: Network, own: Plan) -> tuple[Plan, Plan]:
    """The plan that is fastest in simulation of those with the units of ``own``, and of all.

    The units of ``own`` are the pieces that others are made of, and the one that it keeps after its forward
    pass is the root's. The limit of memory is what a step needs that holds :data:`MOST_HELD` times what
    ``own`` does. Of plans that are alike to 1% the one with these units, and fewer ahead, is taken.

    Raises
    ------
    HocketError
        When the step cannot be simulated.
    """
    check_plan(own, graph)
    step = graph.typical()
    kept = [unit for unit, reshards in zip(own.units, own.reshard_after_forward, strict=True) if not reshards]
    pieces = Pieces(
        blocks=tuple(unit for unit in own.units if unit not in kept[:1]), rest=kept[0] if kept else ()
    )
    planners = ShardedPlanners(step, network, _limit_bytes(step, network, own), pieces)
    same = [
        planners.plan(UnitChoice(cuts=a_unit_a_block(pieces), forward=ahead, backward=ahead))
        for ahead in range(1, _MOST_AHEAD + 1)
    ]
    now = same[0] if same[0].units == own.units else own
    for plan in same[1:] if now is not own else []:
        if _is_better(planners.cost(plan), planners.cost(now)):
            now = plan
    known = [now, planners.ibatch().plan] if is_chain(step, pieces) else [now]
    best = planners.search(known, seed=0, budget_s=_BUDGET_S).plan
    best = best if _is_better(planners.cost(best), planners.cost(now)) else now
    return _named(now, own), _named(best, own)


def _is_better(one: Cost, other: Cost) -> bool:
    """Tell whether a cost is less than another by more than what is alike."""
    return one < (other[0], other[1] / _ALIKE)


def _limit_bytes(graph: StepGraph, network: Network, own: Plan) -> float:
    step = ShardedEvaluator(graph, network).step
    held = {phase: MOST_HELD * size for phase, size in step.schedule(own).most_held().items()}
    return need_of_held(step.graph, held, step.groups.shards).total_bytes


def _named(plan: Plan, own: Plan) -> Plan:
    """``plan`` under a name that says what it is."""
    lists = [*(plan.forward_prefetch or ()), *(plan.backward_prefetch or ())]
    ahead = max((len(each) for each in lists), default=0)
    kept = (
        len(plan.units) - sum(plan.reshard_after_forward) - (len(own.units) - sum(own.reshard_after_forward))
    )
    policy = f"{len(plan.units)} units, {ahead} ahead" + (f", {kept} kept" if kept else "")
    return msgspec.structs.replace(plan, policy=policy)
