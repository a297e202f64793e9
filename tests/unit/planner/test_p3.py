"""P3's slices and their order on a step with an empty, a frozen and an unread parameter."""

from __future__ import annotations

from hocket.graph import Pull, Push, check_plan
from hocket.network import Network
from hocket.planner.p3 import SLICE_BYTES, p3
from tests.strategies import operation, parameter, step

GRAPH = step(
    [
        parameter("unread", 1),
        parameter("last", 10_000_000),
        parameter("w", SLICE_BYTES + 1),
        parameter("b", SLICE_BYTES),
        parameter("frozen", 2 * SLICE_BYTES),
        parameter("empty", 0),
    ],
    [
        operation("first", reads=["w", "b"]),
        operation("second", inputs=["first"], reads=["frozen", "empty"]),
        operation("third", inputs=["second"], reads=["last"]),
        operation("back 3", inputs=["third"], produces=["last"], phase="backward"),
        operation("back 2", inputs=["back 3"], produces=["empty"], phase="backward"),
        operation("back 1", inputs=["back 2"], produces=["b", "w"], phase="backward"),
    ],
)


def test_slices_travel_by_the_layer_that_is_read_first() -> None:
    plan = p3(GRAPH, Network())
    check_plan(plan, GRAPH)
    assert plan.pulls == (
        Pull(parameters=("w",), priority=0, chunks=2),
        Pull(parameters=("b",), priority=0),
        Pull(parameters=("frozen",), priority=1, chunks=2),
        Pull(parameters=("empty",), priority=1),
        Pull(parameters=("last",), priority=2, chunks=3),
        Pull(parameters=("unread",), priority=3),
    )
    assert plan.pushes == (
        Push(parameters=("w",), chunks=2),
        Push(parameters=("b",)),
        Push(parameters=("empty",)),
        Push(parameters=("last",), chunks=3),
    )


def test_no_barrier_and_the_first_ready_push_goes() -> None:
    plan = p3(GRAPH, Network())
    assert (plan.barrier, plan.issue, plan.compute_order) == ("parameter", None, None)
