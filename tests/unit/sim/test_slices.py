"""Parameters in slices: names that are nobody else's, balanced servers, and how P3 stays within the rules."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.graph import check_plan
from hocket.network import Network
from hocket.planner import plan
from hocket.planner.p3 import p3
from hocket.sim import simulate
from hocket.sim.lowering.slices import slice_graph, slice_step
from hocket.tuner import Exchange, make_plan
from tests.strategies import operation, parameter, step


def test_a_sliced_parameter_is_produced_whole_and_updated_by_slices() -> None:
    graph = step(
        [parameter("a", 10), parameter("b", 4)],
        [
            operation("f", 1.0, reads=["a", "b"]),
            operation("g", 1.0, inputs=["f"], produces=["a", "b"], phase="backward"),
            operation("ua", 3.0, inputs=["g"], reads=["a"], phase="update"),
            operation("ub", 1.0, inputs=["g", "ua"], reads=["b"], phase="update"),
        ],
    )
    cut, pieces = slice_graph(graph, np.array([3, 1]))
    assert cut.parameter_names == ("a[0]", "a[1]", "a[2]", "b")
    assert cut.parameter_bytes.tolist() == [3, 3, 4, 4]
    assert cut.operation_names == ("f", "g", "ua[0]", "ua[1]", "ua[2]", "ub")
    assert cut.durations_s[2:5, 0].tolist() == [1.0, 1.0, 1.0]
    assert cut.inputs.row(5).tolist() == [1, 2, 3, 4]
    assert pieces["a"] == ("a[0]", "a[1]", "a[2]")


def test_slices_have_names_of_their_own() -> None:
    graph = step(
        [parameter("a", 9_000_000), parameter("a[0]", 10)],
        [
            operation("f", reads=["a", "a[0]"]),
            operation("g", inputs=["f"], produces=["a", "a[0]"], phase="backward"),
            operation("u", inputs=["g"], reads=["a"], phase="update"),
            operation("u[1]", inputs=["g"], reads=["a[0]"], phase="update"),
        ],
    )
    made = p3(graph, Network())
    cut, cut_plan = slice_step(graph, made)
    check_plan(cut_plan, cut)
    assert simulate(graph, made, Network()).row.iteration_s > 0


def test_p3_cuts_no_finer_than_a_plan_may() -> None:
    graph = step([parameter("a", 2**50)], [operation("f", reads=["a"])])
    made = p3(graph, Network())
    assert made.pulls[0].chunks == 10_000
    check_plan(made, graph)


@pytest.mark.parametrize("barrier", ["step", "parameter"])
def test_a_search_balances_servers_with_slices(barrier: str) -> None:
    tiny = [parameter(f"t{i}", 8) for i in range(3)]
    names = ["big", *(row.name for row in tiny)]
    graph = step(
        [parameter("big", 40_000_000), *tiny],
        [
            operation("f", 0.01, reads=names),
            operation("g", 0.01, inputs=["f"], produces=names, phase="backward"),
        ],
    )
    network = Network(bandwidth_bps=10e9, num_workers=4, num_servers=4)
    p3s = simulate(graph, plan(graph, network, "p3", barrier=barrier), network).row  # type: ignore[arg-type]
    found = make_plan(graph, network, "search", Exchange(barrier=barrier), budget_s=0.5)  # type: ignore[arg-type]
    assert simulate(graph, found.plan, network).row.iteration_s <= p3s.iteration_s * (1 + 1e-9)
