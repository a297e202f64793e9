"""Optima that can be worked out by hand, and what the exact planner does not take."""

from __future__ import annotations

import pytest

from hocket.bench.speed.timed_steps import inception_like
from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner.exact import Optimum, check_exact, exact
from hocket.sim import simulate
from tests.strategies import operation, parameter, step

pytest.importorskip("ortools")

# Two layers: forward 1 + 1, backward 2 + 1; w2's gradient is complete at 4, w1's at 5.
LAYERS = step(
    [parameter("w1", 125), parameter("w2", 500)],
    [
        operation("f1", 1.0, reads=["w1"]),
        operation("f2", 1.0, reads=["w2"], inputs=["f1"]),
        operation("b2", 2.0, inputs=["f2"], produces=["w2"], phase="backward"),
        operation("b1", 1.0, inputs=["b2"], produces=["w1"], phase="backward"),
    ],
)


def optimum(graph: StepGraph, network: Network, architecture: str) -> Optimum:
    def evaluate(plan: Plan) -> float:
        return simulate(graph, plan, network, iterations=4).row.iteration_s

    return exact(graph, network, architecture=architecture, evaluate=evaluate)  # type: ignore[arg-type]


def test_a_parameter_server_step() -> None:
    # Pull w1 0-1, w2 1-5; f1 1-2, f2 5-6, b2 6-8, push w2 8-12, b1 8-9, push w1 12-13.
    found = optimum(LAYERS, Network(bandwidth_bps=1000.0), "ps")
    assert (found.status, found.objective_s) == ("optimal", pytest.approx(13.0))
    assert found.bound_s == pytest.approx(13.0)
    assert [pull.parameters for pull in found.plan.pulls] == [("w1",), ("w2",)]


def test_the_least_allreduce_period_is_found_and_proven() -> None:
    # Two workers on a ring move a byte in 8 ms: w1 takes 1 s, w2 4 s. The processor needs 5 s a step, the
    # network too. w2 travels from 4 to 8, so f2 waits until 8; f1 of the next step needs w1, which is
    # complete at 5 and goes before or after w2. After: 8 to 9, f1 9-10, f2 10-11: a period of 9. Before: the
    # network waits from 4 to 5, w1 5-6, w2 6-10; f1 6-7, f2 10-11: a period of 9, too.
    found = optimum(LAYERS, Network(bandwidth_bps=1000.0, num_workers=2, pattern="ring"), "allreduce")
    assert (found.status, found.objective_s) == ("optimal", pytest.approx(9.0, rel=1e-5))
    assert found.bound_s == pytest.approx(9.0, rel=1e-5)


def test_a_second_step_tells_a_wide_window_from_a_narrow_one() -> None:
    # Without startup and with fast links the period is the processor's 5 s.
    found = optimum(LAYERS, Network(bandwidth_bps=1e9, num_workers=2), "allreduce")
    assert found.objective_s == pytest.approx(5.0, rel=1e-4)


def test_what_it_does_not_take() -> None:
    with pytest.raises(HocketError, match="too many for the exact planner, which takes up to 200; search"):
        check_exact(inception_like(5_000, 200), Network(), "ps")
    with pytest.raises(HocketError, match="makes chunks matter"):
        check_exact(LAYERS, Network(parse_s_per_byte=1e-9), "allreduce")
    with pytest.raises(HocketError, match="does not know what parsing messages costs"):
        check_exact(LAYERS, Network(parse_s=1e-6), "ps")
    with pytest.raises(HocketError, match="use no more servers than workers"):
        check_exact(LAYERS, Network(num_servers=2), "ps")
    with pytest.raises(HocketError, match="a window of 600 B may cut a transfer in two"):
        check_exact(LAYERS, Network(window_bytes=600.0), "ps")
    check_exact(LAYERS, Network(window_bytes=625.0), "ps")
    crossing = step(
        [parameter("a", 8), parameter("b", 8)],
        [
            operation("f", reads=["a", "b"]),
            operation("b", inputs=["f"], produces=["a", "b"], phase="backward"),
            operation("ua", inputs=["b"], reads=["a"], phase="update"),
            operation("ub", inputs=["b", "ua"], reads=["b"], phase="update"),
        ],
    )
    with pytest.raises(HocketError, match="update 'ub' waits for one on another server"):
        check_exact(crossing, Network(num_workers=2, num_servers=2), "ps")
    with pytest.raises(HocketError, match=r"time limit of 0\.0 s"):
        exact(LAYERS, Network(), architecture="ps", evaluate=lambda plan: 0.0, time_limit_s=0.0)
