"""iBatch by hand: layers of a step, batches of small chains, and the baselines it is measured against."""

from __future__ import annotations

import pytest

from hocket.network import Network
from hocket.planner.baselines import default, layerwise, poseidon
from hocket.planner.ibatch import batches_end, ibatch, mirrored, optimal_batches
from hocket.planner.ibatch_greedy import algorithm_1, algorithm_2, greedy_batches, ibatch_greedy
from hocket.planner.layer_chain import backward_layers, forward_layers
from tests.strategies import operation, parameter, step

# 125 bytes a second for each of two workers that pull at once; a second to start a transfer.
NETWORK = Network(bandwidth_bps=2000.0, startup_s=1.0, num_workers=2)
FORWARD = [
    operation("load", 7.0),
    operation("layer 1", [5.0, 3.0], inputs=["load"], reads=["w1", "b1"]),
    operation("relu", 1.0, inputs=["layer 1"]),
    operation("layer 2", 2.0, inputs=["relu"], reads=["w2"]),
    operation("layer 1 again", 1.0, inputs=["layer 2"], reads=["w1"]),
]
BACKWARD = [
    operation("back loss", 1.0, inputs=["layer 1 again"], phase="backward"),
    operation("back 2", 2.0, inputs=["back loss"], reads=["w2"], produces=["w2"], phase="backward"),
    operation("back relu", 1.0, inputs=["back 2"], phase="backward"),
    operation("back b1", 1.0, inputs=["back relu"], produces=["b1"], phase="backward"),
    operation("back w1", 2.0, inputs=["back b1"], produces=["w1"], phase="backward"),
    operation("back load", 5.0, inputs=["back w1"], phase="backward"),
    operation("update w1", 9.0, inputs=["back w1"], reads=["w1"], phase="update"),
]
PARAMETERS = [parameter("w1", 125), parameter("unread", 125), parameter("b1", 125), parameter("w2", 250)]
GRAPH = step(PARAMETERS, FORWARD + BACKWARD)
INFERENCE = step(PARAMETERS, FORWARD)

# The best cuts off the first two layers; Algorithm 1 cuts too rarely, Algorithm 2 too often.
#   Algorithm 1: the first batch that a second one covers and that computes longest is 1 to 2 (3 s), and only
#     3 to 4 (5 s) covers it: transfers end at 3, 8; computes at 6, 12.
#   Algorithm 2: 4 is last; it covers 3 (3 s), whose transfer (2 s) covers 2 (2 s) but not 1 to 2, whose
#     transfer covers 1: transfers end at 2, 4, 6, 10; computes at 3, 6, 9, 11.
#   Best: transfers end at 3, 5, 9; computes at 6, 9, 10.
CHAIN = ([1, 1, 1, 3], [1, 2, 3, 1], 1)


def test_a_forward_layer_runs_from_its_first_read_to_the_next() -> None:
    layers = forward_layers(GRAPH, NETWORK)
    assert layers.parameters == [[0, 2], [3], [1]]
    assert layers.transfer_s.tolist() == [2, 2, 1]
    assert layers.compute_s.tolist() == [4, 3, 0]


def test_a_backward_layer_runs_from_the_last_ones_gradients_to_its_own() -> None:
    layers = backward_layers(GRAPH, NETWORK)
    assert layers.parameters == [[3], [2, 0]]
    assert layers.transfer_s.tolist() == [2, 2]
    assert layers.compute_s.tolist() == [3, 4]
    assert backward_layers(INFERENCE, NETWORK).parameters == []


def test_ibatch_finds_the_batches_that_greedy_misses() -> None:
    """Pulls end at 3 and 7, computes at 7 and 10; pushing w2 alone ends at 10, all at once at 12.

    Greedy pushes in one batch: the transfer of w2 (3 s) does not cover what b1 and w1 wait for (4 s).
    """
    exact, greedy = ibatch(GRAPH, NETWORK), ibatch_greedy(GRAPH, NETWORK)
    assert [pull.parameters for pull in exact.pulls] == [("w1", "b1"), ("w2", "unread")]
    assert [push.parameters for push in exact.pushes] == [("w2",), ("b1", "w1")]
    assert greedy.pulls == exact.pulls
    assert [push.parameters for push in greedy.pushes] == [("w2", "b1", "w1")]
    assert (exact.policy, greedy.policy) == ("ibatch", "ibatch-greedy")
    assert ibatch(INFERENCE, NETWORK).pushes == ibatch_greedy(INFERENCE, NETWORK).pushes == ()


def test_without_startup_every_layer_that_gains_is_cut_off_and_no_other() -> None:
    assert optimal_batches([1, 1, 1], [1, 1, 1], 0) == [1, 2, 3]
    # Layer 2 arrives before layer 1 is computed: cutting between 2 and 3 gains nothing more.
    assert optimal_batches([1, 1, 1], [9, 1, 1], 0) == [1, 3]


def test_a_startup_longer_than_all_computation_allows_one_batch() -> None:
    assert optimal_batches([1, 2, 3], [1, 1, 1], 4) == [3]
    assert mirrored(optimal_batches, [1, 2, 3], [1, 1, 1], 4) == [3]


def test_the_two_algorithms_and_the_best() -> None:
    assert algorithm_1(*CHAIN) == [2, 4]
    assert algorithm_2(*CHAIN) == greedy_batches(*CHAIN) == [1, 2, 3, 4]
    assert optimal_batches(*CHAIN) == [2, 3, 4]
    assert [batches_end(ends, *CHAIN) for ends in ([2, 4], [1, 2, 3, 4], [2, 3, 4])] == [12, 11, 10]


def test_mirrored_batches_are_cut_from_the_other_end() -> None:
    transfer, compute, startup = CHAIN
    assert mirrored(optimal_batches, transfer[::-1], compute[::-1], startup) == [1, 2, 4]


def test_what_the_algorithms_do_where_no_transfer_is_long_enough() -> None:
    # No transfer covers layer 1: one batch, which ends at 6; two end at 5.
    assert algorithm_1([1, 1], [3, 1], 0) == algorithm_2([1, 1], [3, 1], 0) == [2]
    assert optimal_batches([1, 1], [3, 1], 0) == [1, 2]
    # Nothing covers layer 3 (5 s): Algorithm 1 takes the rest.
    assert algorithm_1([1, 1, 1, 1, 1], [1, 1, 5, 1, 1], 1) == [2, 3, 5]
    # Layer 3 (2 s) does not cover layer 2 (4 s): Algorithm 2 takes it alone.
    assert algorithm_2([1, 1, 1, 1], [1, 4, 1, 1], 1) == [1, 2, 3, 4]


@pytest.mark.parametrize("choose", [optimal_batches, greedy_batches, algorithm_1, algorithm_2])
def test_chains_of_none_or_one_are_batched(choose) -> None:  # type: ignore[no-untyped-def]
    assert choose([], [], 1.0) == []
    assert mirrored(choose, [], [], 1.0) == []
    assert choose([1.0], [1.0], 1.0) == [1]


def test_years_which_64_bits_of_picoseconds_do_not_hold() -> None:
    years = ([3e8 * time for time in CHAIN[0]], [3e8 * time for time in CHAIN[1]], 3e8)
    assert batches_end(optimal_batches(*years), *years) == pytest.approx(10 * 3e8)


def test_default_and_poseidon_batch_as_they_are_described() -> None:
    assert [pull.parameters for pull in default(GRAPH, NETWORK).pulls] == [("w1", "unread", "b1", "w2")]
    assert [push.parameters for push in default(GRAPH, NETWORK).pushes] == [("w2", "b1", "w1")]
    assert poseidon(GRAPH, NETWORK).pulls == default(GRAPH, NETWORK).pulls
    assert poseidon(GRAPH, NETWORK).pushes == layerwise(GRAPH, NETWORK).pushes
    assert [push.parameters for push in poseidon(GRAPH, NETWORK).pushes] == [("w2",), ("b1", "w1")]
    assert default(INFERENCE, NETWORK).pushes == poseidon(INFERENCE, NETWORK).pushes == ()
    without = step([], [operation("alone")])
    assert default(without, NETWORK).pulls == ibatch(without, NETWORK).pulls == ()
