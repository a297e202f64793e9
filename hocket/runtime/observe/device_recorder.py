"""A recorder of steps on a GPU: what the host says of a step, at the times of the GPU's own clock.

The host is ahead of the work: its clock says when something was asked for. So each call is kept with a mark
on the GPU's time line, and counts once that has passed, with the mark's time; nobody waits for it in a step.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from hocket.graph import OperationRow, StepGraph
from hocket.graph.timeline import Kind
from hocket.runtime.observe.recorder import Moment, SpanRecorder
from hocket.runtime.transfers.training_device import TrainingDevice


@dataclass(frozen=True)
class _Call:
    """A call of ``record`` at the time of the last one of ``marks``."""

    marks: tuple[Moment, ...]
    record: Callable[[], None]


class DeviceRecorder(SpanRecorder):
    """As :class:`SpanRecorder`, of steps on ``device``; seconds are of its clock, begun at the host's."""

    is_behind = True

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], device: TrainingDevice) -> None:
        self._device = device
        first = device.mark()
        device.wait(first)
        self._known: tuple[Moment, float] = first, time.perf_counter()
        self._replayed_s = self._known[1]
        self._calls: deque[_Call] = deque()
        self._lock = threading.RLock()
        self._parameters_read_here: set[torch.nn.Parameter] = set()
        super().__init__(parameters)

    def now(self) -> Moment:
        """This moment on the current stream."""
        return self._device.mark()

    def seconds_between(self, moments: Sequence[Moment]) -> list[float]:
        """Seconds from each of ``moments`` to the next, when the last has been."""
        if moments:
            self._device.wait(moments[-1])
        return [self._device.seconds_between(before, after) for before, after in pairwise(moments)]

    def flush(self) -> None:
        """Wait for the device, and have everything that was recorded count."""
        while self._calls:  # the last one may be on a stream that is ahead of others
            for mark in self._calls[0].marks:
                self._device.wait(mark)
            self._settle()

    def begin_step(self, number: int) -> None:
        """As there; what has passed by now counts."""
        self._settle()
        self._parameters_read_here.clear()
        begun = self._device.mark()

        def begin() -> None:
            SpanRecorder.begin_step(self, number)
            # Differences of long ago would be rounded: a GPU's are single floats.
            self._known = begun, self._replayed_s

        self._keep(begin, begun)

    def resume(self) -> None:
        """As there."""
        self._keep(super().resume)

    def forget(self) -> None:
        """As there."""
        self._keep(super().forget)

    def reads(self, module: str, parameters: Sequence[torch.nn.Parameter]) -> None:
        """As there."""
        if not self._parameters_read_here.issuperset(parameters):
            self._parameters_read_here.update(parameters)
            self._keep(lambda: SpanRecorder.reads(self, module, parameters))

    def forward_ended(self) -> None:
        """As there."""
        self._keep(super().forward_ended)

    def gradient_completed(self, parameter: torch.nn.Parameter) -> None:
        """As there."""
        self._keep(lambda: SpanRecorder.gradient_completed(self, parameter))

    def backward_ended(self) -> None:
        """As there."""
        self._keep(super().backward_ended)

    def record_span(self, kind: Kind, names: Sequence[str], start: Moment) -> None:
        """As there."""
        self._keep(
            lambda: SpanRecorder.record_span(self, kind, names, min(self._seconds(start), self._replayed_s)),
            start,
            self._device.mark(),
        )

    def record_updates(self, batches: Sequence[Sequence[str]], start: Moment) -> None:
        """As there."""
        self._keep(
            lambda: SpanRecorder.record_updates(self, batches, min(self._seconds(start), self._replayed_s)),
            start,
            self._device.mark(),
        )

    def record_transfer(self, kind: Kind, name: str, start: Moment, end: Moment) -> None:
        """As there; who transfers has no time to wait until it counts."""
        self._keep(
            lambda: SpanRecorder.record_transfer(self, kind, name, self._seconds(start), self._replayed_s),
            start,
            end,
        )

    def graph(self, model: str, batch_size: int) -> StepGraph | None:
        """As there, of all that was recorded."""
        self.flush()
        return super().graph(model, batch_size)

    def update_rows(self) -> list[OperationRow]:
        """As there, of all that was recorded."""
        self.flush()
        return super().update_rows()

    def _keep(self, record: Callable[[], None], *marks: Moment) -> None:
        # Without the lock: who transfers does not wait while a step's calls are replayed.
        self._calls.append(_Call(marks or (self._device.mark(),), record))

    def _settle(self) -> None:
        """Have count what has passed, in the order in which it was recorded."""
        with self._lock:
            while self._calls and all(map(self._device.has_passed, self._calls[0].marks)):
                call = self._calls.popleft()
                self._replayed_s = self._seconds(call.marks[-1])
                call.record()

    def _seconds(self, mark: Moment) -> float:
        known, seconds = self._known
        return seconds + self._device.seconds_between(known, mark)

    def _now_s(self) -> float:
        return self._replayed_s
