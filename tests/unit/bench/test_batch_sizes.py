"""Batch sizes for a given N / C, from a few measured steps."""

from __future__ import annotations

import pytest

from hocket.bench.training.batch_sizes import MOST, choose_batch_sizes
from hocket.errors import HocketError


def affine(fixed_s: float, each_s: float, asked: list[int]) -> object:
    def compute_s(batch_size: int) -> float:
        asked.append(batch_size)
        return fixed_s + each_s * batch_size

    return compute_s


def chosen(network_s: float, rhos: list[float], fixed_s: float, each_s: float) -> tuple[list[int], list[int]]:
    asked: list[int] = []
    return choose_batch_sizes(network_s, rhos, affine(fixed_s, each_s, asked)), asked  # type: ignore[arg-type]


def test_an_affine_step_is_met_exactly() -> None:
    # C = 0.1 + 0.02 b: N / C of 2, 1 and 0.5 at N = 1.1 are C of 0.55, 1.1 and 2.2.
    sizes, asked = chosen(1.1, [2.0, 1.0, 0.5], 0.1, 0.02)
    assert sizes == [22, 50, 105]
    assert asked == [2, 8, 105, 22, 50]


def test_two_measurements_are_enough_where_batches_are_small() -> None:
    assert chosen(1.0, [2.0, 1.0], 0.1, 0.1) == ([4, 9], [2, 8])


def test_a_step_that_is_not_affine_is_measured_where_it_is_needed() -> None:
    def compute_s(batch_size: int) -> float:
        return 0.1 * batch_size if batch_size <= 8 else 0.8 + 0.2 * (batch_size - 8)

    # Two small steps call for 40; C is 7.2 there, so that the line from 8 to 40 is the second piece.
    assert choose_batch_sizes(4.0, [2.0, 1.0], compute_s) == [14, 24]


def test_what_the_line_missed_is_corrected() -> None:
    def compute_s(batch_size: int) -> float:
        return 0.1 * batch_size if batch_size <= 8 else 0.075 * batch_size

    # The line from 8 (0.8 s) to 40 (3 s) has 2 s at 25, where it is 1.875 s.
    assert choose_batch_sizes(2.0, [1.0, 0.5], compute_s) == [27, 53]


def test_there_is_a_smallest_and_a_largest_batch() -> None:
    assert chosen(0.1, [100.0, 1.0], 0.5, 0.1)[0] == [1, 1]
    assert chosen(1e6, [1.0], 0.0, 0.1)[0] == [MOST]


def test_a_step_that_does_not_grow_with_its_batch_is_refused() -> None:
    with pytest.raises(HocketError, match=r"0\.5 s at batch size 2 and 0\.5 s at 8.*--batch-size"):
        chosen(1.0, [1.0], 0.5, 0.0)
