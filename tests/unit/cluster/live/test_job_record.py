"""Counts of what has become of a job's attempts."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.cluster.live.job_record import Record, Tried
from tests.unit.cluster.live.clusters import live_job


def tried(*starts_s: float) -> tuple[Tried, ...]:
    return tuple(Tried((0,), start_s, start_s + 5.0, "it ended") for start_s in starts_s)


@pytest.mark.parametrize(
    ("changes", "retries"),
    [
        ({}, 0),
        ({"state": "running", "attempt": 1, "placed_s": 1.0}, 0),
        ({"attempt": 1, "placed_s": 1.0, "tried": tried(1.0)}, 1),
        ({"state": "running", "attempt": 2, "placed_s": 8.0, "tried": tried(1.0)}, 1),
        ({"attempt": 2, "placed_s": 8.0, "tried": tried(1.0, 8.0), "preempted": 1}, 1),
        ({"state": "cancelled", "attempt": 2, "placed_s": 8.0, "tried": tried(1.0, 8.0), "preempted": 1}, 1),
        ({"attempt": 1, "placed_s": 1.0, "tried": tried(1.0), "preempted": 1}, 0),
        ({"state": "running", "attempt": 3, "placed_s": 9.0, "tried": tried(1.0, 8.0), "shrunk": 1}, 1),
        ({"state": "finished", "attempt": 2, "placed_s": 9.0, "tried": tried(1.0), "grown": 1}, 0),
    ],
)
def test_attempts_that_failed_are_retries_and_those_that_left_their_gpus_are_none(
    changes: dict[str, Any], retries: int
) -> None:
    assert Record(number=1, job=live_job("a"), arrival_s=0.0, **changes).retries == retries
