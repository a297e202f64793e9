"""What ranks run for test_network_measure.py."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import torch

from hocket.profiler._exchange import Task, TimedExchange


class QuarterSeconds:
    """A clock that takes a quarter of a second for whatever is between two moments of its own."""

    device = torch.device("cpu")

    def now(self) -> object:
        return self

    def seconds(self, first: object, last: object) -> float:
        assert first is self
        assert last is self
        return 0.25


def by_another_clock(rank: int, world: int) -> Any:
    """What is measured where a device's clock times it, as one of GPUs."""
    task = Task(transfer_bytes=[4000], reduced_bytes=[64], shared_bytes=64, concurrent=2, repeats=1)
    return msgspec.to_builtins(TimedExchange(task, time.monotonic() + 60, QuarterSeconds()).measure())
