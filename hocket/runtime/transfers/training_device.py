"""The device that gradients are on, and its time line: what was asked for there is not done yet.

Processors do at once what they are asked for. Of a GPU the host only asks: hooks run ahead of the work, and
"filled", "arrived" and "updated" are events on streams. The training thread has streams follow each other;
threads that transfer wait for events, and nobody else does.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

Event = Any
"""A moment on a device's time line; None: it has been."""


class TrainingDevice(Protocol):
    """A device as threads of the host see it, each of which has a current stream."""

    def record(self) -> Event:
        """The moment at which what the current stream has been asked for is done."""

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
        """A copy of ``tensor`` in memory of the host, when its values are there; None: it is the host's."""


_NOTHING = nullcontext()


class Processors:
    """Processors: everything has been when the call that asks for it returns."""

    def record(self) -> Event:
        """No event."""

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


PROCESSORS = Processors()

DEVICES: dict[str, TrainingDevice] = {"cpu": PROCESSORS}
"""Devices that training knows, by the types of their tensors."""


def device_of(tensor: torch.Tensor) -> TrainingDevice:
    """The device that has ``tensor``."""
    return DEVICES[tensor.device.type]
