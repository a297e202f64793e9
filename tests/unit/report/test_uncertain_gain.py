"""Gains that are less than a step may be off by: said where its steps spread wider, and nowhere else."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fake_runs import fake_row

from hocket.confidence import interval_95
from hocket.graph import StepGraph
from hocket.report.uncertain_gain import uncertain_gain
from tests.strategies import operation, parameter, step


def measured(lengths_s: list[float], **changes: object) -> StepGraph:
    graph = step([parameter("w", 4)], [operation("a", 1.0, reads=["w"], produces=["w"], phase="backward")])
    return dataclasses.replace(graph, durations_s=np.array([lengths_s]), **changes)


NOISY = measured([0.8, 1.0, 1.2])
ROWS = [fake_row("caramel", architecture="allreduce", iteration_s=s) for s in (0.9,)]
DDP = fake_row("ddp", architecture="allreduce", iteration_s=1.0)


def test_a_gain_within_the_range_of_the_steps_mean_is_not_sure():
    low, high = interval_95([0.8, 1.0, 1.2])
    assert low is not None
    assert high is not None
    off = round(100 * (high - low) / 2)
    assert uncertain_gain(NOISY, [*ROWS, DDP]) == [
        f"caramel's gain over ddp (10%) is less than the mean step of the profile may be off by ({off}%,"
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
    assert said.startswith(
        "caramel's gain over ddp (3%) is less than the mean step of the profile may be off by (12%, "
    )
