"""No plan, however drawn, beats the bounds where steps overlap; the bounds hold the obvious ones."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.network import Network
from hocket.sim import simulate
from hocket.sim.bound import lower_bound
from tests.strategies import networks, plans, reduction_plans, steps


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_plan_beats_the_period_with_a_barrier_per_parameter(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1))
    network = data.draw(networks(graph))
    plan = msgspec.structs.replace(data.draw(plans(graph)), barrier="parameter")
    row = simulate(graph, plan, network, iterations=12).row
    # The row's own bound is capped by what was simulated; this one is not.
    assert lower_bound(graph, network, "ps", "parameter").shared <= row.iteration_s + 1e-9
    assert row.bound_s >= row.compute_s - 1e-9


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_plan_beats_the_period_of_an_allreduce_step(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1))
    network = Network(
        bandwidth_bps=1000.0,
        num_workers=data.draw(st.integers(1, 4)),
        startup_s=data.draw(st.sampled_from([0.0, 0.5])),
        parse_s=data.draw(st.sampled_from([0.0, 0.25])),
        parse_s_per_byte=data.draw(st.sampled_from([0.0, 0.004])),
    )
    row = simulate(graph, data.draw(reduction_plans(graph)), network, iterations=12).row
    assert lower_bound(graph, network, "allreduce", "step").shared <= row.iteration_s + 1e-9
    assert row.bound_s >= max(row.compute_s, row.communication_s) - 1e-9
