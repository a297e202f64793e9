"""A replayed step, on a clock that jumps, takes what the predictor's naive twin says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hocket.bench.accuracy import scaled
from hocket.graph import Plan, StepGraph
from hocket.graph.flat_plan import flatten
from hocket.network import Network
from hocket.network.topology import Topology
from hocket.runtime.replay.messages import Message, traffic_of
from hocket.runtime.replay.processor import Processor
from hocket.runtime.replay.worker import Pushes
from tests import strategies
from tests.naive import prediction as naive
from tests.property.test_prediction import jittered, links_of
from tests.strategies import examples
from tests.unit.runtime.jumping_clock import JumpingClock, Timetable

NETWORK = Network(bandwidth_bps=1000.0)


@st.composite
def trained(draw: st.DrawFn) -> tuple[StepGraph, Plan]:
    graph = draw(strategies.steps(training=True))
    assume(graph.parameter_bytes.sum() > 0)
    assume(graph.durations_s.mean(axis=1)[graph.phases != 2].sum() > 0)
    replayed = jittered(scaled(graph, 1000.0, 3.0, 1.0), 0)
    return replayed, draw(strategies.plans(replayed))


def last_push_s(pushes: tuple[Message, ...], ready_s: dict[int, float], listed: bool) -> float:
    """When the last of a stream ends; in turn, or of those that are ready the first listed one."""
    free_s, left = 0.0, set(range(len(pushes)))
    while left:
        in_time = [index for index in left if ready_s[index] <= free_s]
        if listed:
            index = min(left)
        elif in_time:
            index = min(in_time)
        else:
            index = min(left, key=lambda index: (ready_s[index], index))
        left.discard(index)
        free_s = max(free_s, ready_s[index]) + pushes[index].size_bytes * 8 / NETWORK.bandwidth_bps
    return free_s


@given(trained(), st.integers(0, 1))
@examples(150)
def test_a_step_of_one_worker_is_the_naive_twins(case: tuple[StepGraph, Plan], sample: int) -> None:
    graph, plan = case
    traffic = traffic_of(plan, graph, 1, drawn_anew=False, seed=0)
    arrive_s = np.cumsum([8 * pull.size_bytes / NETWORK.bandwidth_bps for pull in traffic.pulls])
    clock = JumpingClock()
    pull_of = {p: index for index, pull in enumerate(traffic.pulls) for p in pull.parameters}
    needs = [sorted({pull_of[p] for p in graph.reads.row(i).tolist()}) for i in range(graph.num_operations)]
    processor = Processor(
        graph,
        clock,
        rank=flatten(plan, graph).rank,
        strict=plan.compute_order is not None,
        needs=needs,
        num_messages=len(traffic.pulls),
    )
    pushes, ready_s = Pushes(graph, traffic), dict[int, float]()
    pushes.begin()

    def finished(op: int) -> None:
        ready_s.update(dict.fromkeys(pushes.complete(op), clock.now_s()))

    timetable = Timetable(clock, list(enumerate(arrive_s.tolist())))
    computed_s = processor.run(graph.durations_s[:, sample], 0.0, timetable, finished)
    end_s = max(computed_s, clock.now_s(), last_push_s(traffic.pushes, ready_s, traffic.listed))
    links, capacity = links_of(Topology.flat(NETWORK))
    (expected_s,) = naive.predict(
        naive.Job(graph, plan, NETWORK), 1, 1, lambda worker, k: sample, links=links, capacity=capacity
    )
    assert end_s == pytest.approx(expected_s, rel=1e-9)
