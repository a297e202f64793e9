"""Caramel's stages on examples small enough to follow by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.graph import OperationRow, ParameterRow, StepGraph, check_plan
from hocket.network import Network, reduction_s
from hocket.planner.caramel.batch_placement import BatchTimes, place_batches
from hocket.planner.caramel.caramel import caramel
from hocket.planner.caramel.completion_order import best_order, compute_order, control_edges
from hocket.planner.caramel.gradient_batches import NetworkModel, batch_gradients, depth_of, fit_network
from hocket.planner.worker_processor import serial_times, step_operations
from tests.strategies import operation, parameter, step

# Costs at first: a 1+5+1, b 1+2+1, c 1+5+1. Once b's operations have run a and c are even, and a is first in
# the program. Nothing needs "out" but its own result.
BRANCHED = step(
    [parameter(name, 8) for name in "abc"],
    [
        operation("f", 1.0, reads=["a", "b", "c"]),
        operation("out", 2.0, inputs=["f"]),
        operation("a1", 5.0, inputs=["f"], phase="backward"),
        operation("a2", 1.0, inputs=["a1"], produces=["a"], phase="backward"),
        operation("b1", [2.0], inputs=["f"], phase="backward"),
        operation("b2", 1.0, inputs=["b1"], produces=["b"], phase="backward"),
        operation("c1", 1.0, inputs=["a1"], produces=["c"], phase="backward"),
        operation("update b", 1.0, inputs=["b2"], reads=["b"], phase="update"),
    ],
)


def names(graph: StepGraph, operations: np.ndarray) -> list[str]:
    return [graph.operation_names[i] for i in operations]


def test_order_and_control_edges() -> None:
    order = best_order(BRANCHED)
    assert [BRANCHED.parameter_names[g] for g in order] == ["b", "a", "c"]
    edges = control_edges(BRANCHED, order)
    assert [tuple(names(BRANCHED, np.array(edge))) for edge in edges] == [("b2", "a1"), ("a2", "c1")]
    assert names(BRANCHED, compute_order(BRANCHED, edges)) == ["f", "b1", "b2", "a1", "a2", "c1", "out"]


def test_a_gradient_summed_from_several_operations_is_complete_with_the_last() -> None:
    graph = step(
        [parameter("shared", 8), parameter("own", 8)],
        [
            operation("early", 1.0, produces=["shared"]),
            operation("middle", 2.0, produces=["own"]),
            operation("late", 2.0, produces=["shared"]),
        ],
    )
    # own costs 2, shared 1 + 2; then both ends of own's set bind both free operations of shared.
    order = best_order(graph)
    assert order == [1, 0]
    assert control_edges(graph, order) == [(1, 0), (1, 2)]
    assert control_edges(graph, [0, 1]) == [(0, 1), (2, 1)]


def test_a_gradient_that_adds_nothing_does_not_break_the_chain() -> None:
    graph = step(
        [parameter("a", 8), parameter("a too", 8), parameter("b", 8)],
        [
            operation("first", 1.0, produces=["a", "a too"]),
            operation("second", 1.0, inputs=[], produces=["b"]),
        ],
    )
    assert best_order(graph) == [0, 1, 2]
    assert control_edges(graph, [0, 1, 2]) == [(0, 1)]


def test_the_processor_by_itself() -> None:
    assert names(BRANCHED, step_operations(BRANCHED)) == ["f", "out", "a1", "a2", "b1", "b2", "c1"]
    times = serial_times(BRANCHED, step_operations(BRANCHED))
    assert times.ready_s.tolist() == [9.0, 12.0, 13.0]
    assert times.used_s.tolist() == [0.0, 0.0, 0.0]
    assert times.total_s == 13.0


def test_an_update_that_the_backward_pass_needs_is_part_of_the_step() -> None:
    graph = step(
        [parameter("w", 8)],
        [
            operation("decay", phase="update", reads=["w"]),
            operation("backward", inputs=["decay"], produces=["w"], phase="backward"),
            operation("update", inputs=["backward"], reads=["w"], phase="update"),
        ],
    )
    assert caramel(graph, Network(num_workers=2)).compute_order == ("decay", "backward")


def test_a_gradient_is_needed_when_a_parameter_whose_update_waits_for_it_is() -> None:
    def used_s(*updates: OperationRow) -> list[float]:
        graph = step(
            [parameter(name, 8) for name in ("w1", "w2", "w3")],
            [
                operation("f1", 1.0, reads=["w1"]),
                operation("f2", 2.0, reads=["w2"], inputs=["f1"]),
                operation("f3", 4.0, reads=["w3"], inputs=["f2"]),
                operation("b", 8.0, inputs=["f3"], produces=["w1", "w2", "w3"], phase="backward"),
                *updates,
            ],
        )
        return serial_times(graph, step_operations(graph)).used_s.tolist()

    def update(name: str, inputs: list[str], reads: list[str]) -> OperationRow:
        return operation(name, inputs=inputs, reads=reads, phase="update")

    assert used_s() == [0.0, 1.0, 3.0]
    assert used_s(update("u3", ["b"], ["w3"]), update("u2", ["b"], ["w2"])) == [0.0, 1.0, 3.0]
    assert used_s(update("fused", ["b"], ["w3", "w2"])) == [0.0, 1.0, 1.0]
    assert used_s(update("u3", ["b"], ["w3"]), update("u1", ["b", "u3"], ["w1"])) == [0.0, 1.0, 0.0]
    # It reads no parameter: a norm of all gradients, which all updates wait for.
    assert used_s(update("norm", ["b"], []), update("u2", ["norm"], ["w2"])) == [0.0, 1.0, 1.0]


def test_the_threshold_is_where_doubling_saves_a_fifth() -> None:
    # A ring of 4: 6 startups of 1 ms, 1.5 times each byte at 1 us.
    network = Network(bandwidth_bps=8e6, startup_s=1e-3, num_workers=4, pattern="ring")
    model = fit_network(network)
    assert (model.startup_s, model.s_per_byte) == pytest.approx((6e-3, 1.5e-6))
    assert model.threshold_bytes == 6000
    assert reduction_s(network, 12000) / (2 * reduction_s(network, 6000)) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("network", "threshold"),
    [
        (Network(num_workers=1, startup_s=1.0), 0),
        (Network(num_workers=8), 0),
        (Network(num_workers=8, parse_s_per_byte=1e-9), 0),
    ],
)
def test_without_a_cost_per_transfer_nothing_is_worth_a_batch(network: Network, threshold: int) -> None:
    assert fit_network(network).threshold_bytes == threshold


def test_where_only_transfers_cost_everything_is() -> None:
    assert NetworkModel(startup_s=1.0, s_per_byte=0.0).threshold_bytes > 2**53


MODEL = NetworkModel(startup_s=4.0, s_per_byte=1.0)  # threshold 6 bytes


def gradients(sizes: list[int], dtypes: str) -> StepGraph:
    names = {"u": "uint8", "i": "int8"}
    rows = [
        ParameterRow(f"p{i}", [size], names[letter], size)
        for i, (size, letter) in enumerate(zip(sizes, dtypes, strict=True))
    ]
    return step(rows, [operation(f"o{i}", produces=[row.name]) for i, row in enumerate(rows)])


def test_a_batch_leaves_when_it_is_large_or_the_network_would_idle() -> None:
    # p0 leaves alone at 1, because the network would stand idle until 2; it is busy until 7 then. p1 waits;
    # p2 is large and goes; p3 joins p1; p4 makes them 7 bytes.
    graph = gradients([2, 3, 10, 1, 3], "uuuuu")
    ready = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert batch_gradients(graph, [0, 1, 2, 3, 4], ready, MODEL) == [[0], [2], [1, 3, 4]]


def test_a_batch_has_one_type() -> None:
    graph = gradients([1, 1, 1, 1], "uuiu")
    assert batch_gradients(graph, [0, 1, 2, 3], np.zeros(4), MODEL) == [[0, 1], [2], [3]]
    later = np.array([0.0, 1.0, 1.0, 1.0])
    assert batch_gradients(gradients([1, 1, 1, 1], "uuuu"), [0, 1, 2, 3], later, MODEL) == [[0], [1, 2, 3]]


@pytest.mark.parametrize(("size", "chunks"), [(0, 1), (11, 1), (12, 2), (47, 7), (48, 8), (10**6, 8)])
def test_the_depth_grows_with_the_size_up_to_eight(size: int, chunks: int) -> None:
    assert depth_of(size, Network(num_workers=2), MODEL) == chunks


def test_depth_where_chunks_are_free() -> None:
    free = NetworkModel(startup_s=0.0, s_per_byte=1.0)
    assert depth_of(1000, Network(num_workers=2), free) == 1
    assert depth_of(1000, Network(num_workers=2, parse_s_per_byte=1e-9), free) == 8


def batches(*rows: tuple[int, float, float, float]) -> BatchTimes:
    size, ready, used, travel = (np.array(column) for column in zip(*rows, strict=True))
    return BatchTimes(sizes=size, ready_s=ready, used_s=used, travel_s=travel)


def test_a_batch_goes_beside_the_pass_that_it_delays_less() -> None:
    # Computing takes 10. The first travels from 4 to 9. The second would go on to 12, which is 2 late beside
    # the backward pass, and 1 late beside the forward pass. The third travels from 10 to 12, when it is read.
    # Then the second delays 2 either way: behind the first, or by pushing the third to 14.
    packed = place_batches(batches((50, 4.0, 3.0, 5.0), (30, 6.0, 1.0, 3.0), (20, 10.0, 2.0, 2.0)), 10.0)
    assert packed == ([0, 1], [2])
    # 8 to 13 delays the next step by 3, its first read, at 12, only by 1.
    assert place_batches(batches((50, 8.0, 2.0, 5.0)), 10.0) == ([], [0])
    # The first is read late, but the next step has gradients of its own to send from 1 on.
    assert place_batches(batches((50, 10.0, 6.0, 3.0), (10, 1.0, 0.0, 1.0)), 10.0) == ([1], [0])
    assert place_batches(batches((50, 10.0, 6.0, 3.0)), 10.0) == ([], [0])


# Two layers. Forward 1 + 2, backward 2 + 1: w2 is complete at 5, w1 at 6.
LAYERS = step(
    [parameter("w1", 1000), parameter("w2", 3000)],
    [
        operation("forward 1", 1.0, reads=["w1"]),
        operation("forward 2", 2.0, reads=["w2"], inputs=["forward 1"]),
        operation("backward 2", 2.0, inputs=["forward 2"], produces=["w2"], phase="backward"),
        operation("backward 1", 1.0, inputs=["backward 2"], produces=["w1"], phase="backward"),
        operation("update 1", 0.0, inputs=["backward 1"], reads=["w1"], phase="update"),
        operation("update 2", 0.0, inputs=["backward 2"], reads=["w2"], phase="update"),
    ],
)


def test_a_plan_has_the_order_windows_and_chunks_worked_out_by_hand() -> None:
    # Two workers: 2 startups and 1 ms a byte. w2 takes 3.25 s from 5 to 8.25: 2.25 late beside the backward
    # pass, 1.25 beside the forward pass, which reads it at 7. w1 takes 1.25 s from 6 on and goes first: then
    # it delays the next step by 1.25 and w2's reader by 2.25 more; as much as if all waited for its reader.
    network = Network(bandwidth_bps=8e3, startup_s=0.125, num_workers=2, pattern="ring")
    assert fit_network(network).threshold_bytes == 375
    plan = caramel(LAYERS, network)
    check_plan(plan, LAYERS)
    assert plan.policy == "caramel"
    assert plan.architecture == "allreduce"
    assert plan.issue == "listed"
    assert plan.compute_order == ("forward 1", "forward 2", "backward 2", "backward 1")
    assert [(r.parameters, r.chunks, r.window) for r in plan.reductions] == [
        (("w1",), 2, "backward"),
        (("w2",), 8, "forward"),
    ]


def test_each_stage_can_be_left_out() -> None:
    network = Network(bandwidth_bps=8e3, startup_s=0.125, num_workers=2, pattern="ring")
    plain = caramel(LAYERS, network, order=False, batching=False, windows=False, depth=False)
    assert plain.compute_order is None
    assert [(r.parameters, r.chunks, r.window) for r in plain.reductions] == [
        (("w2",), 1, "backward"),
        (("w1",), 1, "backward"),
    ]
    deep = caramel(LAYERS, network, order=False, batching=False, windows=False)
    assert [r.chunks for r in deep.reductions] == [8, 2]
    ordered = caramel(LAYERS, network, batching=False, windows=False, depth=False)
    assert ordered.compute_order is not None
    # Complete at the same moment, so that waiting costs nothing, and below the threshold of 375 bytes.
    layer = step(
        [parameter("weight", 250), parameter("bias", 50)], [operation("o", produces=["weight", "bias"])]
    )
    assert [r.parameters for r in caramel(layer, network).reductions] == [("weight", "bias")]
    alone = caramel(layer, network, batching=False)
    assert [r.parameters for r in alone.reductions] == [("weight",), ("bias",)]
