"""Steps drawn for all workers without an event loop: as long as the event loop has them, step by step."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.sim.barrier_steps import BarrierStep
from hocket.sim.steady import step_times
from hocket.sim.step_runs import StepRuns, lower
from hocket.tuner.policies import Exchange, make_plan
from tests.strategies import examples, reduction_plans, steps
from tests.unit.predictor.test_predictions import layers

STEPS = 12


def both(graph: StepGraph, plan: Plan, network: Network, speeds: list[float], seed: int) -> None:
    found = BarrierStep.of(graph, plan, network)
    assert found is not None
    watch = np.zeros(1, np.int64)
    seconds, _ = found.step_times(seed, speeds, STEPS, watch)
    run = StepRuns(lower(graph, plan, network, shown=False), seed, False, speeds=speeds)
    assert seconds == pytest.approx(step_times(run, STEPS)[0], rel=1e-9, abs=1e-9)
    assert watch[0] == STEPS


@examples(200)
@given(st.data())
def test_steps_are_those_of_the_event_loop(data: st.DataObject) -> None:
    graph = data.draw(steps(training=True, samples=3))
    plan = data.draw(reduction_plans(graph))
    reductions = tuple(msgspec.structs.replace(each, window="backward") for each in plan.reductions)
    plan = msgspec.structs.replace(plan, reductions=reductions)
    startup_s = data.draw(st.sampled_from([0.0, 0.5]))
    network = Network(bandwidth_bps=1000.0, startup_s=startup_s, num_workers=data.draw(st.integers(1, 5)))
    assume(BarrierStep.of(graph, plan, network) is not None)
    speeds = data.draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=5, max_size=5))
    both(graph, plan, network, speeds[: network.num_workers], data.draw(st.integers(0, 9)))


@pytest.mark.parametrize("policy", ["ddp", "wfbp", "horovod"])
@pytest.mark.parametrize("workers", [1, 2, 3, 64, 65])
def test_planned_steps_are_those_of_the_event_loop(policy: str, workers: int) -> None:
    graph = layers(samples=7)
    network = Network(bandwidth_bps=2000.0, startup_s=0.02, num_workers=workers)
    plan = make_plan(graph, network, policy, Exchange(architecture="allreduce"), seed=0, budget_s=1.0).plan
    both(graph, plan, network, [1.0] * workers, 3)
