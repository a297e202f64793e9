"""What workers learn of the network while they train."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from hocket.runtime.ps.worker.plan_switch import PullTimes

SMALL, LARGE = 1_000, 10_000


def frame(size_bytes: int) -> Any:
    return cast(Any, SimpleNamespace(buffer=torch.empty(size_bytes, dtype=torch.uint8)))


def steps(times: PullTimes, first: int, last: int, bytes_per_s: float) -> None:
    """Pulls of both sizes, one right behind the other."""
    for step in range(first, last):
        moment_s = float(step)
        times.add(step, 0, frame(SMALL), moment_s)
        for size in (SMALL, LARGE):
            moment_s += size / bytes_per_s
            times.add(step, 0, frame(size), moment_s)


def test_pulls_behind_others_tell_the_bandwidth() -> None:
    times = PullTimes()
    assert times.network(1, 1) is None
    steps(times, 0, 5, bytes_per_s=1e5)
    found = times.network(workers=4, servers=2)
    assert found is not None
    assert found.bandwidth_bps == pytest.approx(4 * 8 * 1e5)


def test_of_a_long_training_only_the_last_pulls_are_kept() -> None:
    times = PullTimes()
    steps(times, 0, 600, bytes_per_s=1e5)
    steps(times, 600, 900, bytes_per_s=1e6)
    found = times.network(1, 1)
    assert found is not None
    assert found.bandwidth_bps == pytest.approx(8e6, rel=1e-3)
