"""The slowest of several workers that each draw a measured step, against all draws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.predictor.unlike_steps import slowest_s, uneven_s

LENGTHS = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=4)
SPEEDS = st.lists(st.sampled_from([0.5, 1.0, 2.0, 0.3]), min_size=1, max_size=4)


@given(LENGTHS, SPEEDS)
def test_it_is_the_mean_over_all_draws(lengths: list[float], speeds: list[float]) -> None:
    drawn = itertools.product(lengths, repeat=len(speeds))
    slowest = [max(s / v for s, v in zip(draw, speeds, strict=True)) for draw in drawn]
    assert slowest_s(np.array(lengths), speeds) == pytest.approx(np.mean(slowest))


def test_even_steps_wait_for_nobody() -> None:
    assert uneven_s(np.full(5, 0.3), [1.0, 0.5, 1.0]) == 0.0
