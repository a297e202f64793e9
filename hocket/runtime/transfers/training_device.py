"""The device that gradients are on, and its time line: what was asked for there is not done yet.

Processors do at once what they are asked for. Of a GPU the host only asks: hooks run ahead of the work, and
"filled", "arrived" and "updated" are events on streams. The training thread has streams follow each other;
threads that transfer wait for events, and nobody else does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import torch

from hocket.runtime.transfers.transfer_group import TransferGroup

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Event = Any
"""A moment on a device's time line; None: it has been."""


class TrainingDevice(Protocol):
    """A device as threads of the host see it, each of which has a current stream.

    ``clock``: whose clock times its work, in words, where it is not the host's.
    """

    clock: str

    def record(self) -> Event:
        """The moment at which what the current stream has been asked for is done."""

    def mark(self) -> Event:
        """As :meth:`record`, an event that is timed."""

    def seconds_between(self, first: Event, last: Event) -> float:
        """Seconds from one mark to another, which both have been."""

    def has_passed(self, event: Event) -> bool:
        """Tell whether ``event`` has been."""

    def wait(self, event: Event) -> None:
        """The host waits for ``event``."""

    def follow(self, event: Event) -> None:
        """Have what the current stream is asked for from now on done behind ``event``."""

    def stream(self) -> Any:
        """This thread's current stream."""

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Within, ``stream`` is this thread's."""

    def own_stream(self) -> AbstractContextManager[Any]:
        """Within, this thread has a stream of its own, and works for this device."""

    def fetch_to_host(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A copy of ``tensor`` in memory of the host; None: it is the host's.

        Its values are there at the event that is recorded next.
        """

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """So many bytes of the host's that the device reads and writes by itself."""

    def transfer_group(
        self, ranks: Sequence[int], name: str, timeout: timedelta, process_group: ProcessGroup | None
    ) -> TransferGroup | None:
        """``ranks`` that sum up its memory where it is, as ``process_group`` does; None: over gloo."""


_NOTHING = nullcontext()


class Processors:
    """Processors: everything has been when the call that asks for it returns."""

    clock = ""

    def record(self) -> Event:
        """No event."""

    def mark(self) -> Event:
        """The host's time."""
        return time.perf_counter()

    def seconds_between(self, first: Event, last: Event) -> float:
        """Of the host's clock."""
        return float(last - first)

    def has_passed(self, _: Event) -> bool:
        """It has been."""
        return True

    def wait(self, _: Event) -> None:
        """It has been."""

    def follow(self, _: Event) -> None:
        """It has been."""

    def stream(self) -> Any:
        """There are none."""

    def on(self, _: Any) -> AbstractContextManager[Any]:
        """There are none."""
        return _NOTHING

    def own_stream(self) -> AbstractContextManager[Any]:
        """There are none."""
        return _NOTHING

    def fetch_to_host(self, _: torch.Tensor) -> torch.Tensor | None:
        """It is the host's."""

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """Any is."""
        return torch.empty(num_bytes, dtype=torch.uint8)

    def transfer_group(self, *_: Any) -> TransferGroup | None:
        """Gloo sums up memory of the host where it is."""


PROCESSORS = Processors()

DEVICES: dict[str, TrainingDevice] = {"cpu": PROCESSORS}
"""Devices that training has met, by their names."""


def device_of(tensor: torch.Tensor) -> TrainingDevice:
    """The device that has ``tensor``."""
    name = str(tensor.device)
    if name not in DEVICES:
        from hocket.runtime.transfers.cuda_device import CudaDevice  # its events are CUDA's

        DEVICES[name] = CudaDevice(tensor.device)
    return DEVICES[name]
