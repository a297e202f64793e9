"""The exact planner beside enumeration, the simulator and the bounds, on steps small enough for all."""

from __future__ import annotations

from itertools import permutations, product

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hocket.errors import HocketError
from hocket.graph import Plan, Pull, Push, Reduction, StepGraph, check_plan
from hocket.graph.clipped_step import clipped
from hocket.network import Network
from hocket.planner import plan
from hocket.planner.exact import Optimum, check_exact, exact
from hocket.sim import simulate
from hocket.sim.bounds.lower_bound import lower_bound
from tests.strategies import examples, partitions, steps

pytest.importorskip("ortools")


def seconds(graph: StepGraph, made: Plan, network: Network) -> float:
    return simulate(graph, made, network, iterations=4).row.iteration_s


def optimum(graph: StepGraph, network: Network, architecture: str, *, halves: bool = False) -> Optimum:
    found = exact(
        graph,
        network,
        architecture=architecture,  # type: ignore[arg-type]
        evaluate=lambda made: seconds(graph, made, network),
        time_limit_s=20.0,
        halves=halves,
    )
    check_plan(found.plan, graph)
    assert found.bound_s <= found.objective_s * (1 + 1e-9)
    assert seconds(graph, found.plan, network) == pytest.approx(found.objective_s)
    return found


def pull_orders(graph: StepGraph, network: Network) -> float:
    """The best of all pull orders, any ready operation first."""
    made = plan(graph, network, "fifo")
    return min(
        seconds(graph, msgspec.structs.replace(made, pulls=pulls), network)
        for order in permutations(graph.parameter_names)
        for pulls in [tuple(Pull(parameters=(name,), priority=k) for k, name in enumerate(order))]
    )


@given(st.data())
@examples(25)
def test_no_pull_order_beats_it_and_it_beats_no_bound(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1, max_parameters=4, max_operations=8))
    servers = data.draw(st.integers(1, min(2, graph.num_parameters)))
    network = Network(bandwidth_bps=1000.0, num_workers=2, num_servers=servers)
    try:
        check_exact(graph, network, "ps")
    except HocketError:
        assume(False)  # updates that wait for each other across servers
    found = optimum(graph, network, "ps")
    assert found.objective_s <= pull_orders(graph, network) + 1e-6
    bound = lower_bound(graph, network, "ps", "step", lockstep=True)
    assert found.objective_s >= max(bound.shared, bound.each.max()) - 1e-6
    if found.status == "optimal":
        assert found.bound_s >= max(bound.shared, bound.each.max()) - 1e-6


@pytest.mark.long
@given(st.data())
@examples(4)
def test_no_order_of_seven_pulls_beats_it(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1, min_parameters=7, max_parameters=7, max_operations=12))
    network = Network(bandwidth_bps=1000.0, num_workers=1)
    assert optimum(graph, network, "ps").objective_s <= pull_orders(graph, network) + 1e-6


@given(st.data())
@examples(12)
def test_no_batching_beats_it_where_transfers_cost_to_start(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1, max_parameters=3, max_operations=6))
    network = Network(bandwidth_bps=1000.0, startup_s=0.5, num_workers=2)
    found = optimum(graph, network, "ps")
    trained = tuple(name for i, name in enumerate(graph.parameter_names) if graph.produced[i])
    made = plan(graph, network, "fifo")
    best = min(
        seconds(
            graph,
            msgspec.structs.replace(
                made,
                pulls=tuple(Pull(parameters=batch, priority=k) for k, batch in enumerate(pulls)),
                pushes=tuple(Push(parameters=batch) for batch in pushes),
            ),
            network,
        )
        for pulls in partitions(graph.parameter_names)
        for pushes in partitions(trained)
    )
    assert found.objective_s <= best + 1e-6


@given(st.data())
@examples(15)
def test_no_halves_beat_the_exact_period_of_a_clipped_step(data: st.DataObject) -> None:
    graph = clipped(data.draw(steps(samples=1, training=True, max_parameters=3, max_operations=6)))
    network = Network(bandwidth_bps=1000.0, num_workers=2)
    found = optimum(graph, network, "allreduce", halves=True)
    trained = tuple(name for i, name in enumerate(graph.parameter_names) if graph.produced[i])
    made = plan(graph, network, "ddp")
    best = min(
        seconds(
            graph,
            msgspec.structs.replace(
                made,
                reductions=tuple(
                    Reduction(parameters=batch, window="forward", halves=half)
                    for batch, half in zip(batches, halves, strict=True)
                ),
                issue=issue,
            ),
            network,
        )
        for batches in partitions(trained)
        for halves in product((False, True), repeat=len(batches))
        for issue in ("listed", "ready")
    )
    if found.status == "optimal":
        assert found.objective_s <= best * (1 + 1e-4) + 1e-6
    bound = lower_bound(graph, network, "allreduce", "step", lockstep=True, halves=True)
    assert found.objective_s >= bound.shared - 1e-6


@given(st.data())
@examples(15)
def test_no_reductions_beat_the_exact_period(data: st.DataObject) -> None:
    graph = data.draw(steps(samples=1, training=True, max_parameters=3, max_operations=6))
    network = Network(bandwidth_bps=1000.0, startup_s=data.draw(st.sampled_from([0.0, 0.25])), num_workers=2)
    found = optimum(graph, network, "allreduce")
    trained = tuple(name for i, name in enumerate(graph.parameter_names) if graph.produced[i])
    made = plan(graph, network, "ddp")
    best = min(
        seconds(
            graph,
            msgspec.structs.replace(
                made, reductions=tuple(Reduction(parameters=batch, window=window) for batch in batches)
            ),
            network,
        )
        for batches in partitions(trained)
        for window in ("forward", "backward")
    )
    # Any-ready execution may alternate between steps; the model's schedules repeat exactly.
    if found.status == "optimal":
        assert found.objective_s <= best * (1 + 1e-4) + 1e-6
    bound = lower_bound(graph, network, "allreduce", "step", lockstep=True)
    assert found.objective_s >= bound.shared - 1e-6
