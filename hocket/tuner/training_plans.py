"""Plans that a training tries on its own step and network, the most promising first."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec
import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.clipped_step import is_clipped
from hocket.graph.plan import has_halves
from hocket.network import Network
from hocket.planner import plan as plan_by_policy
from hocket.planner.allreduce_baselines import ddp
from hocket.planner.bytescheduler import bytescheduler, partition_of
from hocket.sim.step_runs import StepRuns, lower_for_one
from hocket.tuner.plan_argument import AUTO
from hocket.tuner.policies import Exchange, make_plan

_BUCKETS_MB = (1, 5)  # DDP users try these; it is 25 that they have if they do not
_PARTITIONS = (0.5, 1.0, 2.0, 4.0)  # of the planner's own choice
_MOST_TRIED = 3
_ALIKE = 1.02
_ITERATIONS = 4


def plans_for(policy: str, graph: StepGraph, network: Network) -> list[Plan]:
    """The plan of the ``policy`` that was asked for; for "auto" those to try."""
    if policy == AUTO:
        return plans_to_try(graph, network)
    exchange = Exchange(architecture="allreduce", clip=is_clipped(graph))
    return [make_plan(graph, network, policy, exchange).plan]


def plans_to_try(graph: StepGraph, network: Network) -> list[Plan]:
    """The plans for ``graph`` to try beside DDP's, the one that looks best in simulation first.

    At most three, each under its own name; none that is not 2% faster than DDP's, or that differs by less
    from one which is tried. But beside the best one, that of its likes with the fewest transfers is tried,
    too: what each costs the processors is not simulated, and costs in every step. That of the most transfers,
    which would hold up an urgent one for less long where ranks are out of step, is tried where the best one
    has the fewest itself. They are simulated on the typical step: in the few steps of a profile one that was
    disturbed would decide. Of a step that clips by norm some may sum gradients up in halves; one that does
    not is among those tried, where it is that much faster than DDP's.
    """
    step = graph.typical()
    usual = ddp(graph, network)
    plans = _distinct([usual, *_candidates(graph, network)])
    seconds = [_seconds(step, plan, network) for plan in plans]
    usual_s = seconds[0]
    ranked = sorted(range(1, len(plans)), key=lambda k: seconds[k])
    worthwhile = [k for k in ranked if seconds[k] * _ALIKE < usual_s]
    if not worthwhile:
        return []
    best = worthwhile[0]
    alike = [k for k in worthwhile if seconds[k] <= _ALIKE * seconds[best]]
    chosen = [best, *_another(best, alike, [len(plan.reductions) for plan in plans])]
    for k in worthwhile:
        if len(chosen) < _MOST_TRIED and all(seconds[k] > _ALIKE * seconds[other] for other in chosen):
            chosen.append(k)
    whole = [k for k in worthwhile if not has_halves(plans[k])]
    if whole and all(has_halves(plans[k]) for k in chosen):
        chosen[_MOST_TRIED - 1 :] = whole[:1]
    return [plans[k] for k in chosen]


def _seconds(step: StepGraph, plan: Plan, network: Network) -> float:
    """Seconds of a step under ``plan``, as :func:`hocket.simulate` has it, without its bound.

    All workers repeat the one sample of ``step``, so one is simulated.
    """
    runs = StepRuns(lower_for_one(step, plan, network), 0, False)
    return fmean(each.end_s - each.start_s for each in runs.steps(_ITERATIONS))


def _another(best: int, alike: Sequence[int], transfers: Sequence[int]) -> list[int]:
    """Of plans that are ``alike``, the one that is tried beside the best one, if there are others."""
    fewest = min(alike, key=lambda k: transfers[k])
    most = max(alike, key=lambda k: transfers[k])
    other = fewest if transfers[fewest] < transfers[best] else most
    return [] if transfers[other] == transfers[best] else [other]


def _distinct(plans: Sequence[Plan]) -> list[Plan]:
    """Of plans that do the same under two names the first: as where no gradient is larger than a slice."""
    made: list[Plan] = []
    for plan in plans:
        if all((plan.reductions, plan.compute_order) != (p.reductions, p.compute_order) for p in made):
            made.append(plan)
    return made


def _candidates(graph: StepGraph, network: Network) -> list[Plan]:
    """Caramel's plan, ByteScheduler's with slices of several sizes, and DDP's with smaller buckets."""
    plans = [
        plan
        for halves in ((False, True) if is_clipped(graph) else (False,))
        for plan in _sliced_or_batched(graph, network, halves)
    ]
    buckets = {f"ddp {mb} MB": ddp(graph, network, mb << 20) for mb in _BUCKETS_MB}
    return plans + [msgspec.structs.replace(made, policy=name) for name, made in buckets.items()]


def _sliced_or_batched(graph: StepGraph, network: Network, halves: bool) -> list[Plan]:
    """Caramel's plan, and ByteScheduler's; ``halves``: they may cut reductions in halves."""
    partition, behind = partition_of(network), " in halves" if halves else ""
    made = plan_by_policy(graph, network, "caramel", halves=halves)
    plans = [msgspec.structs.replace(made, policy=f"caramel{behind}")]
    # A chain of operations has one order; another one is worth a plan where it changes what is ready when.
    free = bool(np.diff(graph.inputs.indptr).max(initial=0) > 1)
    for factor in _PARTITIONS:
        size = round(factor * partition)
        for ordered in (False, True) if free else (False,):
            made = bytescheduler(graph, network, size, ordered=ordered, halves=halves)
            name = f"bytescheduler {size / 1e6:.3g} MB{', ordered' if ordered else ''}{behind}"
            plans.append(msgspec.structs.replace(made, policy=name))
    return [plan for plan in plans if has_halves(plan)] if halves else plans
