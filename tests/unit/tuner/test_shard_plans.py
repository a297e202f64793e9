"""Plans that sharded training chooses for itself: with the units in force, and with any."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from hocket.errors import HocketError
from hocket.graph import check_plan
from hocket.network import Network
from hocket.planner.sharded.unit_baselines import fsdp
from hocket.sim import simulate
from hocket.sim.sharded_evaluator import ShardedEvaluator
from hocket.tuner.shard_plans import MOST_HELD, best_plans
from tests.unit.tuner.test_sharded import model

# Startups decide: fewer, larger units are faster.
NETWORK = Network(bandwidth_bps=8e10, startup_s=0.05, num_workers=2)


def test_the_best_plans_have_the_units_in_force_and_any() -> None:
    graph = dataclasses.replace(model(6), device="cpu")
    own = fsdp(graph, NETWORK)
    now, best = best_plans(graph, NETWORK, own)
    check_plan(best, graph)
    assert now.units == own.units
    assert len(best.units) < len(own.units)
    seconds = [simulate(graph, plan, NETWORK, iterations=1).row.iteration_s for plan in (best, now, own)]
    assert seconds == sorted(seconds)
    needs = [ShardedEvaluator(graph, NETWORK).memory_bytes(plan) for plan in (best, own)]
    assert needs[0] <= MOST_HELD * needs[1]
    assert best.policy.startswith(f"{len(best.units)} units, ")


def test_a_plan_of_another_step_is_refused() -> None:
    own = fsdp(model(3), NETWORK)
    with pytest.raises(HocketError):
        best_plans(model(2), NETWORK, msgspec.structs.replace(own, model="other"))
