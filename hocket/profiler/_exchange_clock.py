"""Clocks that exchanges are timed by: the host's, or, of those between GPUs, the GPU's own."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, Protocol

import torch


class ExchangeClock(Protocol):
    """A clock of the device that ``tensors`` of exchanges are on.

    Work that has been waited for is over there, or what is asked for later comes behind it.
    """

    device: torch.device

    def now(self) -> Any:
        """This moment: of a GPU, when what it was asked for is done."""

    def seconds(self, first: Any, last: Any) -> float:
        """Seconds from one moment to another; returns when both have been."""


class HostClock:
    """The clock of processors."""

    device = torch.device("cpu")

    def now(self) -> Any:
        """Nanoseconds."""
        return perf_counter_ns()

    def seconds(self, first: Any, last: Any) -> float:
        """Their difference."""
        return float(last - first) / 1e9


class CudaClock:
    """Timed events on the current stream of ``device``, a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        torch.cuda.set_device(device)

    def now(self) -> Any:
        """An event behind what the GPU was asked for."""
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def seconds(self, first: Any, last: Any) -> float:
        """The time between the events, which the host waits for."""
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3
