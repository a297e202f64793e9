"""The critical cycle at the compute time and the network time that the rounds showed."""

from __future__ import annotations

import pytest

from hocket.bench.training.measured_bound import critical_cycle_s, simulated_s
from hocket.graph import Plan, Reduction, StepGraph
from hocket.network import MeasuredReduction, Network
from hocket.sim.bounds.lower_bound import lower_bound
from tests.strategies import operation, parameter, step

PAIR = Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=0.0, b_s_per_byte=0.01))


def plan(*names: str) -> Plan:
    reductions = tuple(Reduction(parameters=(name,), window="forward") for name in names)
    return Plan(
        policy="drawn", model="toy", architecture="allreduce", reductions=reductions, compute_order=None
    )


def cycle_s(graph: StepGraph, compute_s: float, network_s: float) -> float:
    return critical_cycle_s(graph, PAIR, compute_s=compute_s, network_s=network_s)


# An embedding: read first, its gradient last, so that its exchange overlaps nothing.
EMBEDDING = step(
    [parameter("e", 100)],
    [
        operation("forward", [0.1, 0.3, 0.5], reads=["e"]),
        operation("backward", [0.3, 0.3, 0.3], inputs=["forward"], produces=["e"], phase="backward"),
    ],
)


def test_what_is_read_first_and_ready_last_adds_its_exchange_to_the_step() -> None:
    assert cycle_s(EMBEDDING, compute_s=2.0, network_s=1.0) == pytest.approx(3.0)
    assert cycle_s(EMBEDDING, compute_s=1.0, network_s=5.0) == pytest.approx(6.0)


def test_what_overlaps_is_bounded_by_compute_and_network_alone() -> None:
    # Each layer's gradient is needed only after the other layer's forward and backward pass.
    chain = step(
        [parameter("a", 100), parameter("b", 100)],
        [
            operation("fa", 1.0, reads=["a"]),
            operation("fb", 1.0, reads=["b"], inputs=["fa"]),
            operation("ba", 1.0, inputs=["fb"], produces=["a"], phase="backward"),
            operation("bb", 1.0, inputs=["ba"], produces=["b"], phase="backward"),
        ],
    )
    assert cycle_s(chain, compute_s=8.0, network_s=1.0) == pytest.approx(8.0)
    assert cycle_s(chain, compute_s=0.8, network_s=8.0) == pytest.approx(8.4)


def test_what_a_plan_without_slices_forgoes_is_not_the_limit() -> None:
    # Whole, the stem's gradient waits for the head's or the other way round; in slices it overtakes.
    graph = step(
        [parameter("head", 900), parameter("stem", 100)],
        [
            operation("forward stem", 2.0, reads=["stem"]),
            operation("forward head", 0.5, reads=["head"], inputs=["forward stem"]),
            operation("backward head", 0.5, inputs=["forward head"], produces=["head"], phase="backward"),
            operation("backward stem", 2.0, inputs=["backward head"], produces=["stem"], phase="backward"),
        ],
    )
    network = Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=0.0, b_s_per_byte=0.005))
    assert lower_bound(graph, network, "allreduce", "step", lockstep=True).shared == pytest.approx(8.0)
    # The head computes for 1 s; then all is on its way, beside the stem's computing.
    assert critical_cycle_s(graph, network, compute_s=5.0, network_s=5.0) == pytest.approx(6.0)


def test_a_network_measured_with_fewer_ranks_does_not_change_what_all_reduces_took() -> None:
    four = [
        Network(num_workers=4, reduction=MeasuredReduction(workers=workers, a_s=0.0, b_s_per_byte=0.01))
        for workers in (2, 4)
    ]
    of_two, of_four = (critical_cycle_s(EMBEDDING, each, compute_s=1.0, network_s=1.5) for each in four)
    assert of_two == of_four == pytest.approx(2.5)


def test_what_is_expected_of_the_plan_is_of_the_step_as_measured() -> None:
    # Forward and backward take 0.6 s on average, the exchange 1 s, one after the other.
    assert 1.4 <= simulated_s(EMBEDDING, plan("e"), PAIR) <= 1.8
