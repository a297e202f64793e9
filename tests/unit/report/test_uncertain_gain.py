"""Gains that are less than a step may be off by: said where its steps spread wider, and nowhere else."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fake_runs import fake_row

from hocket.confidence import interval_95
from hocket.graph import StepGraph
from hocket.graph.step import MEASURE_AGAIN
from hocket.report.uncertain_gain import below_gains, uncertain_gain
from tests.strategies import operation, parameter, step


def measured(lengths_s: list[float], **changes: object) -> StepGraph:
    graph = step([parameter("w", 4)], [operation("a", 1.0, reads=["w"], produces=["w"], phase="backward")])
    return dataclasses.replace(graph, durations_s=np.array([lengths_s]), **changes)


NOISY = measured([0.8, 1.0, 1.2])
QUIET = measured([1.0])
ROWS = [fake_row("caramel", architecture="allreduce", iteration_s=s) for s in (0.9,)]
DDP = fake_row("ddp", architecture="allreduce", iteration_s=1.0)


def test_a_gain_within_the_range_of_the_steps_mean_is_not_sure():
    low, high = interval_95([0.8, 1.0, 1.2])
    assert low is not None
    assert high is not None
    off = round(100 * (high - low) / 2)
    assert uncertain_gain(NOISY, [*ROWS, DDP]) == [
        f"caramel's gain over ddp (10%) is less than the profile's own error ({off}%,"
        " 95% by the spread of the profile's steps), so it may be zero"
    ]


@pytest.mark.parametrize(
    ("graph", "rows"),
    [
        (measured([0.99, 1.0, 1.01]), [*ROWS, DDP]),
        (measured([1.0]), [*ROWS, DDP]),
        (measured([0.8, 1.0, 1.2], expected_error=0.3), [*ROWS, DDP]),
        (NOISY, [DDP]),
        (NOISY, ROWS),
    ],
)
def test_nothing_is_said_of_larger_gains_of_steps_without_a_spread_and_of_none(graph, rows):
    assert uncertain_gain(graph, rows) == []


def test_a_gain_that_is_smaller_if_all_steps_were_alike_counts_as_that():
    graph = measured([0.95, 1.0, 1.05])
    assert uncertain_gain(graph, [fake_row("caramel", architecture="allreduce", iteration_s=0.8), DDP]) == []
    (said,) = uncertain_gain(
        graph,
        [fake_row("caramel", architecture="allreduce", iteration_s=0.8), DDP],
        {"caramel": 0.97, "ddp": 1.0},
    )
    assert said.startswith("caramel's gain over ddp (3%) is less than the profile's own error (12%, ")


def test_of_rows_that_are_level_the_first_is_judged_as_the_verdict_names_it():
    """The search found none better than caramel, of which alone a step is known if all were alike."""
    rows = [
        fake_row(name, architecture="allreduce", iteration_s=s)
        for name, s in (("caramel", 0.80002), ("search", 0.8))
    ]
    (said,) = uncertain_gain(measured([0.95, 1.0, 1.05]), [*rows, DDP], {"caramel": 0.97, "ddp": 1.0})
    assert said.startswith("caramel's gain over ddp (3%) ")


def test_a_gain_at_a_rho_at_which_training_had_none_is_said_to_be_none():
    def caramel(rho: float, iteration_s: float = 0.9):
        return fake_row("caramel", architecture="allreduce", iteration_s=iteration_s, rho=rho)

    (said,) = below_gains(QUIET, [caramel(0.13), DDP])
    assert said.startswith(
        "rho is 0.13: in training at rho 0.5, where there is more to gain, no order gained"
    )
    assert below_gains(QUIET, [caramel(0.6), DDP]) == []
    assert below_gains(QUIET, [caramel(0.13, 1.0), DDP]) == []
    assert below_gains(QUIET, [caramel(0.13)]) == []
    # Of a busy machine rho is too small.
    assert below_gains(measured([1.0], caveat=f"busy, so {MEASURE_AGAIN}"), [caramel(0.13), DDP]) == []
