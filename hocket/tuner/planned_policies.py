"""The plans that ``tune`` ranks: of every policy, and the one that a search from theirs finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from hocket.graph import Plan
from hocket.graph.plan import has_halves
from hocket.planner import plan as plan_by_policy
from hocket.planner.named_planners import BEST_BUCKETS, POLICIES
from hocket.planner.sharded.block_chain import is_chain
from hocket.tuner.best_buckets import best_buckets
from hocket.tuner.improve import SearchChoices, improve
from hocket.tuner.policies import Exchange, PlannedPolicy, for_workers, make_plan, policy_names
from hocket.tuner.sharded_plans import ShardedPlanners
from hocket.tuner.tuning_request import TuningRequest


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A search's plan, seconds that none within the limit of memory beats, and plans for less memory.

    ``frontier``: of the plans that were tried, by the mean step, none takes less of both memory and time.
    """

    made: PlannedPolicy
    frontier: list[Plan] = field(default_factory=list)
    within_s: float = 0.0


def planned_policies(request: TuningRequest) -> dict[str, PlannedPolicy]:
    """The plan of each policy, and of those with reductions in halves one of whole ones, too."""
    graph, network, seed = request.graph, request.network, request.seed
    names = _names(request)
    planned: dict[str, PlannedPolicy] = {}
    for k, name in enumerate(names):
        where = f"planning by {name}, policy {k + 1} of {len(names)}"
        request.report(where, k, len(names))
        if name == BEST_BUCKETS:
            # Chosen by the steps that rank it, so that it never stands behind ddp.
            buckets = best_buckets(
                graph,
                network,
                iterations=request.iterations,
                seed=seed,
                progress=lambda what, done, total, where=where, k=k: request.report(  # type: ignore[misc]
                    f"{where}: {what}, {done + 1} of {total}", k + done / total, len(names)
                ),
            )
            planned[name] = PlannedPolicy(plan=for_workers(buckets, network))
            continue
        planned[name] = make_plan(
            graph, network, name, _exchange(request, name), seed=seed, budget_s=request.budget_s
        )
        if has_halves(planned[name].plan) and name in POLICIES:
            whole = for_workers(plan_by_policy(graph, network, name, seed=seed), network)
            whole = msgspec.structs.replace(whole, policy=f"{name} whole")
            planned[whole.policy] = PlannedPolicy(plan=whole)
    request.report("search", 0, request.budget_s)
    return planned


def _names(request: TuningRequest) -> list[str]:
    left_out = {"search"} if request.is_exact else {"search", "exact"}
    if request.architecture == "fsdp" and not is_chain(request.graph):
        left_out.add("fsdp-ibatch")
    return [name for name in policy_names(request.architecture) if name not in left_out]


def _exchange(request: TuningRequest, name: str) -> Exchange:
    return Exchange(
        architecture=request.architecture,
        barrier=request.barrier,
        fusion_bytes=request.fusion_bytes if name == "horovod" else 0,
        clip=request.clip,
        memory_bytes=request.memory_bytes,
    )


def searched(request: TuningRequest, known: Sequence[Plan]) -> Searched:
    """The best plan that a search finds from those that are ``known``."""
    if request.architecture == "fsdp":
        return _searched_units(request, known)
    better = improve(
        request.graph,
        request.network,
        known,
        choices=SearchChoices(barrier=request.barrier, halves=request.clip),
        seed=request.seed,
        budget_s=request.budget_s,
        progress=request.report,
    )
    plan = for_workers(better.plan, request.network)
    return Searched(made=PlannedPolicy(plan=plan, evaluations=better.evaluations))


def _searched_units(request: TuningRequest, known: Sequence[Plan]) -> Searched:
    graph, network, memory_bytes = request.graph, request.network, request.memory_bytes
    limited = ShardedPlanners(graph, network, np.inf if memory_bytes is None else memory_bytes)
    better = limited.search(known, seed=request.seed, budget_s=request.budget_s)
    plan = for_workers(better.plan, network)
    return Searched(
        made=PlannedPolicy(plan=plan, evaluations=better.evaluations),
        frontier=limited.frontier(),
        # A bound of mean steps is none of a few that are drawn.
        within_s=limited.bound_s() if graph.num_samples == 1 else 0.0,
    )
