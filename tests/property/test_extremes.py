"""Steps at the edges of what a file may hold: every result is finite and positive, or refused in one line."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import FormatError, HocketError
from hocket.graph import StepGraph
from hocket.network import Network
from hocket.planner import Architecture
from hocket.predictor import predict
from hocket.predictor.prediction_request import Mode
from hocket.sim import simulate
from hocket.tuner import make_plan
from tests import strategies

DURATIONS = st.sampled_from([0.0, 1e-30, 1e-12, 1.0, 1e9])
SIZES = st.sampled_from([0, 1, 10**6, 2**40])
BATCHES = st.sampled_from([1, 2**53])
NETWORKS = st.builds(
    Network,
    bandwidth_bps=st.sampled_from([1.0, 1e10, 1e18]),
    startup_s=st.sampled_from([0.0, 1e-9, 3600.0]),
    num_workers=st.just(2),
)


def layers(durations: list[float], sizes: list[int], batch_size: int) -> StepGraph:
    return strategies.step(
        [strategies.parameter("a", sizes[0]), strategies.parameter("b", sizes[1])],
        [
            strategies.operation("f a", durations[0], reads=["a"]),
            strategies.operation("f b", durations[1], inputs=["f a"], reads=["b"]),
            strategies.operation("b b", durations[2], inputs=["f b"], produces=["b"], phase="backward"),
            strategies.operation("b a", durations[3], inputs=["b b"], produces=["a"], phase="backward"),
        ],
        batch_size=batch_size,
    )


STEPS = st.builds(
    layers,
    st.lists(DURATIONS, min_size=4, max_size=4),
    st.lists(SIZES, min_size=2, max_size=2),
    BATCHES,
)


def numbers(document: Any) -> list[float]:
    if isinstance(document, dict):
        return [n for value in document.values() for n in numbers(value)]
    if isinstance(document, list):
        return [n for value in document for n in numbers(value)]
    return [document] if isinstance(document, float) else []


@settings(max_examples=40)
@given(STEPS, NETWORKS, st.sampled_from(["tac", "ibatch", "poseidon", "ddp", "caramel", "wfbp"]))
def test_a_simulated_extreme_is_finite_or_refused(graph: StepGraph, network: Network, policy: str) -> None:
    try:
        row = simulate(graph, make_plan(graph, network, policy).plan, network, iterations=2).row
    except HocketError:
        return
    assert all(map(math.isfinite, numbers(msgspec.to_builtins(row))))
    assert row.iteration_s > 0
    assert row.throughput > 0


@settings(max_examples=40)
@given(STEPS, NETWORKS, st.sampled_from([("async", "ps"), ("sync", "ps"), ("sync", "allreduce")]))
def test_a_predicted_extreme_is_finite_possible_or_refused(
    graph: StepGraph, network: Network, how: tuple[Mode, Architecture]
) -> None:
    try:
        rows = predict(graph, network, workers=[1, 3], mode=how[0], architecture=how[1], steps=4, skip=1)
    except HocketError:
        return
    for row in rows:
        assert all(map(math.isfinite, numbers(msgspec.to_builtins(row))))
        assert row.throughput > 0
        assert row.efficiency is None or 0 < row.efficiency <= 1


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"durations": [1e-320] * 4}, "1e-320 is shorter than any operation; give 0, or from 1e-30 s"),
        ({"durations": [1e300] * 4}, "is not a number of seconds between 0 and 1e9"),
        ({"sizes": [2**63, 1]}, "is not between 0 and 2^53"),
        ({"batch_size": 0}, "0 is not a positive whole number"),
    ],
)
def test_what_no_step_holds_is_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(FormatError, match=rule.replace("^", "\\^")):
        layers(**{"durations": [1.0] * 4, "sizes": [1, 1], "batch_size": 1, **change})


@pytest.mark.parametrize("duration_s", [0.0, 1.0])
def test_a_step_that_sends_nothing_is_refused(duration_s: float) -> None:
    graph, network = layers([duration_s] * 4, [0, 0], 1), Network(num_workers=2)
    with pytest.raises(HocketError, match="have no byte, so nothing is sent"):
        predict(graph, network, workers=2)
