"""Durations of a step's calls, one after the other, with as little as possible around them.

The same step as without a timer, plus 14-20 us a call outside the timed regions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Self

import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from hocket.errors import HocketError
from hocket.graph.step import Seconds


@dataclass(frozen=True, kw_only=True)
class CallTimes:
    """A step's calls on one clock that starts with the step; arrays have one entry a call, in seconds."""

    begins_s: Seconds
    ends_s: Seconds
    step_s: float

    def of(self, calls: list[int]) -> tuple[Seconds, Seconds]:
        """For the chosen calls, the time in each and the time before each since the one before.

        Time after the last counts as before it: together the two sum to the step.
        """
        begins_s, ends_s = self.begins_s[calls], self.ends_s[calls]
        before_s = begins_s - np.concatenate([[0.0], ends_s[:-1]])
        before_s[-1] += self.step_s - ends_s[-1]
        return ends_s - begins_s, np.maximum(before_s, 0.0)


class Timer(TorchDispatchMode, ABC):  # type: ignore[no-untyped-call]
    """Times the operators dispatched inside ``with timer:``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[OpOverload] = []
        self._paused = False

    def pause(self) -> None:
        """Stop the clock; operators run untimed until :meth:`resume`."""
        self._paused = True

    def resume(self) -> None:
        """Let the clock go on as if no time had passed."""
        self._paused = False

    def __enter__(self) -> Self:
        """Start the step's clock."""
        self._start()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        """Stop the step's clock."""
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        self._stop()

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def _stop(self) -> None: ...

    @abstractmethod
    def times(self) -> CallTimes:
        """The calls' times, aligned with ``calls``; waits for the device."""


class HostTimer(Timer):  # type: ignore[no-untyped-call]
    """Host clock around each call, for devices that have finished when the call returns."""

    def __init__(self) -> None:
        super().__init__()
        self._begins_ns: list[int] = []
        self._ends_ns: list[int] = []

        self._paused_ns = self._paused_since_ns = 0

    def _start(self) -> None:
        self._start_ns = perf_counter_ns()

    def _stop(self) -> None:
        self._stop_ns = perf_counter_ns() - self._paused_ns

    def pause(self) -> None:
        """Stop the clock; operators run untimed until :meth:`resume`."""
        super().pause()
        self._paused_since_ns = perf_counter_ns()

    def resume(self) -> None:
        """Let the clock go on as if no time had passed."""
        self._paused_ns += perf_counter_ns() - self._paused_since_ns
        super().resume()

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator between two readings of the clock."""
        if self._paused:
            return func(*args, **kwargs) if kwargs else func(*args)
        begin_ns = perf_counter_ns()
        result = func(*args, **kwargs) if kwargs else func(*args)
        self._ends_ns.append(perf_counter_ns() - self._paused_ns)
        self._begins_ns.append(begin_ns - self._paused_ns)
        self.calls.append(func)
        return result

    def times(self) -> CallTimes:
        """Times on the host's clock."""
        return CallTimes(
            begins_s=(np.array(self._begins_ns) - self._start_ns) / 1e9,
            ends_s=(np.array(self._ends_ns) - self._start_ns) / 1e9,
            step_s=(self._stop_ns - self._start_ns) / 1e9,
        )


class CudaTimer(Timer):  # type: ignore[no-untyped-call]
    """A pair of CUDA events around each call, on the stream that is current for it.

    A call's time is the device's between its events: its kernels, and where the device had to wait for the
    host, the launch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._start_event, self._stop_event = _event(), _event()
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        # Each with the number of calls before it.
        self._pauses: list[tuple[int, torch.cuda.Event, torch.cuda.Event]] = []

    def pause(self) -> None:
        """Stop the clock; operators run untimed until :meth:`resume`."""
        super().pause()
        begin, end = _event(), _event()
        begin.record()
        self._pauses.append((len(self._events), begin, end))

    def resume(self) -> None:
        """Let the clock go on as if no time had passed."""
        self._pauses[-1][2].record()
        super().resume()

    def _start(self) -> None:
        torch.cuda.synchronize()
        self._start_event.record()

    def _stop(self) -> None:
        self._stop_event.record()

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator between two events."""
        if self._paused:
            return func(*args, **kwargs) if kwargs else func(*args)
        begin, end = _event(), _event()
        begin.record()
        result = func(*args, **kwargs) if kwargs else func(*args)
        end.record()
        self._events.append((begin, end))
        self.calls.append(func)
        return result

    def times(self) -> CallTimes:
        """Times on the device's clock."""
        torch.cuda.synchronize()
        since_start = self._start_event.elapsed_time
        paused_ms = np.zeros(len(self._events) + 1)  # before each call, and before the step's end
        for num_calls, begin, end in self._pauses:
            paused_ms[num_calls:] += begin.elapsed_time(end)
        return CallTimes(
            begins_s=(np.array([since_start(begin) for begin, _ in self._events]) - paused_ms[:-1]) / 1e3,
            ends_s=(np.array([since_start(end) for _, end in self._events]) - paused_ms[:-1]) / 1e3,
            step_s=float(since_start(self._stop_event) - paused_ms[-1]) / 1e3,
        )


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def make_timer(device_type: str) -> Timer:
    """The timer for ``cpu`` or ``cuda``."""
    if device_type not in ("cpu", "cuda"):
        raise HocketError(f"device '{device_type}' cannot be profiled; move the model to cpu or cuda")
    return CudaTimer() if device_type == "cuda" else HostTimer()


def now_s(device_type: str) -> float:
    """The host's clock in seconds, once the device has nothing left to do."""
    if device_type == "cuda":
        torch.cuda.synchronize()
    return perf_counter_ns() / 1e9


class PlainClock:
    """Times a step without looking at its operators."""

    def __init__(self, device_type: str) -> None:
        self.step_s = 0.0
        self._device_type = device_type
        self._paused_s = self._paused_since_s = 0.0

    def __enter__(self) -> Self:
        """Start the clock."""
        self._began_s = now_s(self._device_type)
        return self

    def __exit__(self, *exception: Any) -> None:
        """Stop the clock."""
        self.step_s = now_s(self._device_type) - self._began_s - self._paused_s

    def pause(self) -> None:
        """Stop the clock until :meth:`resume`."""
        self._paused_since_s = now_s(self._device_type)

    def resume(self) -> None:
        """Let the clock go on as if no time had passed."""
        self._paused_s += now_s(self._device_type) - self._paused_since_s
