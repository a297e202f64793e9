"""Comparisons over the same job sets: means, intervals and signs, against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.cluster.results.paired import SweepRow, SweepRun, paired_rows, sweep_row
from hocket.confidence import interval_95


def row(policy: str, averages: list[float]) -> SweepRow:
    runs = [
        SweepRun(
            job_set=f"set {k}",
            seed=k,
            events=1,
            wall_s=0.0,
            average_jct_s=average,
            median_jct_s=average / 2,
            p95_jct_s=3 * average,
            gpu_utilization=0.5,
            makespan_s=10 * average,
        )
        for k, average in enumerate(averages)
    ]
    return sweep_row("lwf-1", policy, runs)


def test_an_interval_is_students() -> None:
    # Mean 2, standard deviation 1, t(0.975, 2) = 4.302653.
    assert interval_95([1.0, 2.0, 3.0]) == (
        pytest.approx(2 - 4.302653 / np.sqrt(3), rel=1e-6),
        pytest.approx(2 + 4.302653 / np.sqrt(3), rel=1e-6),
    )
    assert interval_95([5.0]) == (None, None)


def test_a_row_has_means_and_intervals() -> None:
    found = row("srsf-1", [100.0, 200.0, 300.0])
    assert found.average_jct_s.mean == pytest.approx(200)
    low, high = found.average_jct_s.low, found.average_jct_s.high
    assert low is not None
    assert high is not None
    assert high - 200 == pytest.approx(200 - low) == pytest.approx(100 * 4.302653 / np.sqrt(3), rel=1e-6)
    assert (found.median_jct_s.mean, found.makespan_s.mean) == (pytest.approx(100), pytest.approx(2000))


def test_pairs_compare_set_by_set() -> None:
    # Sets differ a lot, policies by 10% each time: only pairing shows it.
    base, better = [100.0, 1000.0, 10000.0], [91.0, 900.0, 8900.0]
    (pair,) = paired_rows([row("srsf-1", base), row("psrsf", better)])
    assert (pair.policy, pair.than_policy) == ("psrsf", "srsf-1")
    assert pair.relative.mean == pytest.approx(-0.1)
    assert pair.relative.high is not None
    assert pair.relative.high < -0.07
    assert pair.difference_s.mean == pytest.approx(np.mean([-9, -100, -1100]))
    assert pair.p95_relative.mean == pytest.approx(-0.1)
    assert pair.faster == 3
    assert pair.p_value is not None
    assert 0 < pair.p_value < 1


def test_every_pair_is_there_and_the_later_row_comes_first_in_it() -> None:
    pairs = paired_rows([row("a", [1.0]), row("b", [2.0]), row("c", [3.0])])
    assert [(pair.policy, pair.than_policy) for pair in pairs] == [("b", "a"), ("c", "a"), ("c", "b")]
    assert pairs[0].relative.mean == pytest.approx(1.0)
    assert (pairs[0].relative.low, pairs[0].p_value) == (None, None)


def test_equal_results_have_no_p_value() -> None:
    (pair,) = paired_rows([row("a", [1.0, 2.0]), row("b", [1.0, 2.0])])
    assert (pair.p_value, pair.faster, pair.relative.mean) == (None, 0, 0.0)
    assert (pair.relative.low, pair.relative.high) == (0.0, 0.0)
