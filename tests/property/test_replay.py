"""A replayed step, on a clock that jumps, takes what the predictor's naive twin says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hocket.bench.replay.replayed_steps import scaled
from hocket.graph import Plan, StepGraph
from hocket.graph.flat_plan import flatten
from hocket.network import Network
from hocket.network.topology import Topology
from hocket.runtime.replay.replayed_processor import Processor
from hocket.runtime.replay.worker import CompletedGradients
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


def last_end_s(ready_s: list[float], takes_s: list[float], listed: bool) -> float:
    """When the last of a stream ends; in turn, or of those that are ready the first listed one."""
    free_s, left = 0.0, set(range(len(ready_s)))
    while left:
        in_time = [index for index in left if ready_s[index] <= free_s]
        if listed:
            index = min(left)
        elif in_time:
            index = min(in_time)
        else:
            index = min(left, key=lambda index: (ready_s[index], index))
        left.discard(index)
        free_s = max(free_s, ready_s[index]) + takes_s[index]
    return free_s


@given(trained(), st.integers(0, 1))
@examples(150)
def test_a_step_of_one_worker_is_the_naive_twins(case: tuple[StepGraph, Plan], sample: int) -> None:
    graph, plan = case
    flat = flatten(plan, graph)
    pulls_s, pushes_s = (
        [8 * float(graph.parameter_bytes[batch].sum()) / NETWORK.bandwidth_bps for batch in it.batches()]
        for it in (flat.pulls, flat.gradients)
    )
    due = [
        (parameter, end_s)
        for batch, end_s in zip(flat.pulls.batches(), np.cumsum(pulls_s).tolist(), strict=True)
        for parameter in batch.tolist()
    ]
    clock = JumpingClock()
    processor = Processor(
        graph,
        clock,
        rank=flat.rank,
        strict=plan.compute_order is not None,
        needs=[graph.reads.row(i).tolist() for i in range(graph.num_operations)],
        num_messages=graph.num_parameters,
    )
    gradients, complete_s = CompletedGradients(graph), dict[int, float]()

    def finished(op: int) -> None:
        complete_s.update(dict.fromkeys(gradients.completed_by(op), clock.now_s()))

    computed_s = processor.run(graph.durations_s[:, sample], 0.0, Timetable(clock, due), finished)
    ready_s = [max(complete_s[p] for p in batch.tolist()) for batch in flat.gradients.batches()]
    end_s = max(computed_s, clock.now_s(), last_end_s(ready_s, pushes_s, flat.listed))
    links, capacity = links_of(Topology.flat(NETWORK))
    (expected_s,) = naive.predict(
        naive.Job(graph, plan, NETWORK), 1, 1, lambda worker, k: sample, links=links, capacity=capacity
    )
    assert end_s == pytest.approx(expected_s, rel=1e-9)
