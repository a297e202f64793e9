"""Recordings of a rank's steps: spans for timelines, and the step as a graph for planners.

A rank's processor does one thing after another, so the graph is a chain: forward pieces between two first
reads, backward pieces between two gradients, the update of each parameter. Waiting is in no piece: what is
left is how long computing takes beside whatever the network does at the same time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from hocket.graph import OperationRow, StepGraph, StepRows, step_from_rows
from hocket.graph.plan import batch_name
from hocket.graph.timeline import Kind
from hocket.runtime.observe.step_rows import parameter_rows, unused_row

_START = "start"
_KEPT_SPANS = 20_000
_KEPT_STEPS = 32

Moment = Any
"""A moment that a recorder knows: seconds of the host's clock, or a mark on a GPU's time line."""

Record = tuple[Kind, str, float, float]
Key = tuple[Kind, str]
Step = dict[Key, float]

# The user's code from the end of the backward pass to the next step. It is part of the step's time, and no
# phase is made for it: in graphs it ends the backward pass, and so it does in timelines, which are compared
# with what was predicted from graphs.
BETWEEN_STEPS: Key = ("backward", "between steps")


class SpanRecorder:
    """Records one rank's steps; ``parameters``: the trained ones by name.

    ``gradient_dtype``: the type in which longer gradients travel; None: all as they are.

    Everything but :meth:`record_transfer` is called from the training thread. ``is_behind``: whether moments
    of the last steps may not have been yet.
    """

    is_behind = False

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        self.parameters = dict(parameters)
        self.gradient_dtype: torch.dtype | None = None
        self._names = {p: name for name, p in parameters.items()}
        self._backward_keys: dict[torch.nn.Parameter, Key] = {
            p: ("backward", n) for p, n in self._names.items()
        }
        self._sizes = {name: p.numel() for name, p in parameters.items()}
        self.spans: deque[Record] = deque(maxlen=_KEPT_SPANS)
        self.steps: deque[Step] = deque(maxlen=_KEPT_STEPS)
        self.begins: deque[float] = deque(maxlen=_KEPT_STEPS)
        self._numbers: deque[int] = deque(maxlen=_KEPT_STEPS)
        self._reads: dict[str, tuple[str, ...]] = {}
        self._step: Step = {}
        self._parameters_read: set[torch.nn.Parameter] = set()
        self._open: Key | None = None
        self._since = self._now_s()

    def now(self) -> Moment:
        """This moment, as spans begin with it."""
        return time.perf_counter()

    def seconds_between(self, moments: Sequence[Moment]) -> list[float]:
        """Seconds from each of ``moments`` to the next."""
        return [after - before for before, after in pairwise(moments)]

    def flush(self) -> None:
        """Have everything that was recorded count, as it does."""

    def begin_step(self, number: int) -> None:
        """Step ``number``, of the training's first 1, begins: with it ends the time between steps."""
        self._close()
        self.begins.append(self._since)
        self._numbers.append(number)
        if self._step:
            self.steps.append(self._step)
        self._step, self._parameters_read = {}, set()
        self._open = ("forward", _START)

    def resume(self) -> None:
        """Count the time since the last call as no piece's."""
        self._since = self._now_s()

    def forget(self) -> None:
        """Drop what was recorded of steps: from now on they run under another plan."""
        self.steps.clear()
        self.begins.clear()
        self._numbers.clear()
        self._step = {}

    def reads(self, module: str, parameters: Sequence[torch.nn.Parameter]) -> None:
        """``module`` is about to read ``parameters``, some of them for the first time in this step."""
        read = self._parameters_read
        new = tuple(p for p in parameters if p not in read) if read else tuple(parameters)
        if not new:
            return
        self._parameters_read.update(new)
        name = module or "model"
        self._close()
        self._open = ("forward", name)
        self._reads[name] = tuple(self._names[p] for p in new)

    def forward_ended(self) -> None:
        """The forward pass is over; the time to the first gradient belongs to that gradient."""
        self._close()

    def gradient_completed(self, parameter: torch.nn.Parameter) -> None:
        """The gradient of ``parameter`` has just been completed."""
        self._open = self._backward_keys[parameter]
        self._close()

    def backward_ended(self) -> None:
        """The backward pass is over; until the next forward pass time is spent between steps."""
        self._close()
        self._open = BETWEEN_STEPS

    def record_span(self, kind: Kind, names: Sequence[str], start: Moment) -> None:
        """Since ``start`` the processor waited for ``names``; now it goes on as before."""
        start_s, now = self._since_then(start)
        self.spans.append((kind, f"{kind} {batch_name(tuple(names))}", start_s, now))

    def record_updates(self, batches: Sequence[Sequence[str]], start: Moment) -> None:
        """Since ``start`` the processor updated ``batches`` together; now it goes on as before.

        Each takes its elements' share of the time, one behind the other.
        """
        start_s, now = self._since_then(start)
        each_s = (now - start_s) / max(sum(self._sizes[name] for names in batches for name in names), 1)
        for names in batches:
            end_s = start_s
            for name in names:
                key: Key = ("update", name)
                self._step[key] = self._step.get(key, 0.0) + self._sizes[name] * each_s
                end_s += self._sizes[name] * each_s
            self.spans.append(("update", f"update {batch_name(tuple(names))}", start_s, end_s))
            start_s = end_s

    def _since_then(self, start: Moment) -> tuple[float, float]:
        """``start`` and now, between which no piece of a step ran."""
        now, start_s = self._now_s(), float(start)
        self._close(start_s)
        self._since = now
        return start_s, now

    def record_transfer(self, kind: Kind, name: str, start: Moment, end: Moment) -> None:
        """A transfer went over the network; called from the threads that wait for transfers."""
        self.spans.append((kind, name, start, end))

    def graph(self, model: str, batch_size: int) -> StepGraph | None:
        """The steps of the usual form since :meth:`forget`, a sample each; None without any."""
        steps = list(self.steps)
        if not steps:
            return None
        forms = [_form(step) for step in steps]
        usual = max(forms, key=forms.count)
        samples = [step for step, form in zip(steps, forms, strict=True) if form == usual]
        rows: list[OperationRow] = []
        for kind, name in usual:
            assert kind in ("forward", "backward")
            rows.append(
                OperationRow(
                    name=piece_name((kind, name)),
                    phase="forward" if kind == "forward" else "backward",
                    duration_s=[step[kind, name] for step in samples],
                    inputs=[rows[-1].name] if rows else [],
                    reads=list(self._reads.get(name, ())) if kind == "forward" else [],
                    produces=[name] if kind == "backward" and name in self.parameters else [],
                )
            )
        unused = [name for name in self.parameters if ("backward", name) not in usual]
        rows.append(unused_row(rows[-1].name, unused))
        rows += self.update_rows()
        return step_from_rows(
            StepRows(
                model=model,
                batch_size=batch_size,
                device=str(next(iter(self.parameters.values())).device),
                parameters=parameter_rows(self.parameters, self.gradient_dtype),
                operations=rows,
            )
        )

    def computing_s(self, count: int) -> list[float]:
        """Seconds of all pieces of each of the last ``count`` whole steps: what it took but for waiting."""
        self.flush()
        return [sum(step.values()) for step in list(self.steps)[-count:]]

    def update_rows(self) -> list[OperationRow]:
        """The update of each parameter as an operation, the median of its times."""
        rows = []
        for name in self.parameters:
            seconds = [step["update", name] for step in self.steps if ("update", name) in step]
            if seconds:
                rows.append(OperationRow(f"update {name}", "update", median(seconds), [], [name], []))
        return rows

    def last_steps(self, num_steps: int) -> tuple[int, float, list[Record]]:
        """The number of last steps, at most ``num_steps``, their begin in seconds, their spans by start."""
        begins = list(self.begins)[-num_steps - 1 :]
        if len(begins) < 2:
            return 0, 0.0, []
        first, last = begins[0], begins[-1]
        inside = [span for span in list(self.spans) if span[3] > first and span[2] < last]
        return len(begins) - 1, first, sorted(inside, key=lambda span: span[2])

    def last_numbers(self, count: int) -> tuple[int, int]:
        """The numbers of the first and the last of the last ``count`` whole steps."""
        numbers = list(self._numbers)
        return numbers[-count - 1], numbers[-1] - 1

    def _now_s(self) -> float:
        return time.perf_counter()

    def _close(self, now: float | None = None) -> None:
        now = self._now_s() if now is None else now
        if self._open is not None and now > self._since:
            self._step[self._open] = self._step.get(self._open, 0.0) + now - self._since
            self.spans.append((self._open[0], piece_name(self._open), self._since, now))
        self._since = now


def piece_name(piece: Key) -> str:
    """The name of a piece of a step in graphs and timelines."""
    return " ".join(piece)


def _form(step: Step) -> tuple[Key, ...]:
    """The pieces of a step in order, without updates, whose order is that of arrivals."""
    return tuple(key for key in step if key[0] != "update")
