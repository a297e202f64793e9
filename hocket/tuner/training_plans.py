"""Plans that a training tries on its own step and network, the most promising first."""

from __future__ import annotations

import msgspec
import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner import plan as plan_by_policy
from hocket.planner.allreduce_baselines import ddp
from hocket.planner.bytescheduler import bytescheduler, partition_of
from hocket.sim import simulate
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
    return [make_plan(graph, network, policy, Exchange(architecture="allreduce")).plan]


def plans_to_try(graph: StepGraph, network: Network) -> list[Plan]:
    """The best plans, and DDP's with the sizes of buckets that its users try."""
    plans, known = best_plans(graph, network), [ddp(graph, network).reductions]
    for mb in _BUCKETS_MB:
        made = ddp(graph, network, mb << 20)
        if made.reductions not in known:  # as those of small models are
            known.append(made.reductions)
            plans.append(msgspec.structs.replace(made, policy=f"ddp {mb} MB"))
    return plans


def best_plans(graph: StepGraph, network: Network) -> list[Plan]:
    """The plans for ``graph`` to try, the one that looks best in simulation first, each under its own name.

    Of those that differ by hardly anything there, the one with the fewest transfers and the one with the most
    are among them: what each costs the processors is not simulated, nor how long a large one holds up an
    urgent one where ranks are out of step. They are simulated on the typical step: in the few steps of a
    profile one that was disturbed would decide.
    """
    partition = partition_of(network)
    plans = [plan_by_policy(graph, network, "caramel")]
    # A chain of operations has one order; another one is worth a plan where it changes what is ready when.
    free = bool(np.diff(graph.inputs.indptr).max(initial=0) > 1)
    for factor in _PARTITIONS:
        size = round(factor * partition)
        for ordered in (False, True) if free else (False,):
            made = bytescheduler(graph, network, size, ordered=ordered)
            if any((made.reductions, made.compute_order) == (p.reductions, p.compute_order) for p in plans):
                continue  # as where no gradient is larger than a slice
            name = f"bytescheduler {size / 1e6:.3g} MB{', ordered' if ordered else ''}"
            plans.append(msgspec.structs.replace(made, policy=name))
    step = graph.typical()
    seconds = {
        plan.policy: simulate(step, plan, network, iterations=_ITERATIONS).row.iteration_s for plan in plans
    }
    ranked = sorted(plans, key=lambda plan: seconds[plan.policy])
    least_s = seconds[ranked[0].policy]
    alike = [plan for plan in ranked if seconds[plan.policy] <= _ALIKE * least_s]
    fewest = min(alike, key=lambda plan: len(plan.reductions))
    most = max(alike, key=lambda plan: len(plan.reductions))
    by_name = {plan.policy: plan for plan in (ranked[0], fewest, most, *ranked)}
    return list(by_name.values())[:_MOST_TRIED]
