"""Events of sharded steps on this rank: computing, waiting and transfers, and when they were."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist

from hocket.runtime.transfers.gloo_threads import AWAITED, wait_at_end

KEPT_STEPS = 8
_MOST_TRANSFERS = 20_000  # of what ends no step, as a long evaluation

Transferring = Literal["gather", "reduce"]


What = Literal["enter", "leave", "gathered", "computed", "update", "updated"]


class Cut(NamedTuple):
    """A moment at which this rank's processor goes over to other work.

    ``what``: "enter" and "leave" of a unit's forward pass, "gathered" when its parameters have been waited
    for, "computed" at the end of its backward pass, "update" and "updated" around the optimizer's step, of no
    unit; ``backward``: within a backward pass.
    """

    what: What
    unit: int | None
    at_s: float
    backward: bool


class Wait(NamedTuple):
    """A wait for transfers of ``kind`` and ``unit``, None for those of several units."""

    kind: Transferring
    unit: int | None
    begin_s: float
    end_s: float


@dataclass
class Transfer:
    """A collective of ``unit``; ``end_s``: None while it is under way, or where that is not told."""

    kind: Transferring
    unit: int
    size_bytes: int
    begin_s: float
    end_s: float | None = None


@dataclass
class StepEvents:
    """The events of one step, in their order; ``held``: moments, and the bytes held beside shards since."""

    begin_s: float
    end_s: float = 0.0
    cuts: list[Cut] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    held: list[tuple[float, int]] = field(default_factory=list)


class ShardEvents:
    """The events of the last steps; ``steps``: how many there were.

    ``clock`` is asked by the training thread and by gloo's, which end transfers. ``held_bytes``: asked for
    the memory that is held beside shards; None where it is not known.
    """

    held_bytes: Callable[[], int] | None = None

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.steps = 0
        self._clock = clock
        self._whole: deque[StepEvents] = deque(maxlen=KEPT_STEPS)
        self._now = StepEvents(clock())
        self._lock = threading.Lock()
        wait_at_end()

    @property
    def last(self) -> list[StepEvents]:
        """The last whole steps, without the first of all, which sets things up."""
        with self._lock:
            return list(self._whole)

    def cut(self, what: What, unit: int | None) -> None:
        """Note that the processor goes over to other work."""
        backward = torch._C._current_graph_task_id() != -1
        self._now.cuts.append(Cut(what, unit, self._clock(), backward))
        self.note_held()

    def note_held(self) -> None:
        """Note the memory that is held beside shards."""
        if self.held_bytes is not None:
            self._now.held.append((self._clock(), self.held_bytes()))

    @contextlib.contextmanager
    def waiting(self, kind: Transferring, unit: int | None) -> Iterator[None]:
        """Within, the processor waits."""
        begin_s = self._clock()
        yield
        self._now.waits.append(Wait(kind, unit, begin_s, self._clock()))

    def started(self, kind: Transferring, unit: int, size_bytes: int, work: dist.Work) -> None:
        """Note a transfer, and when ``work`` ends it."""
        transfer = Transfer(kind, unit, size_bytes, self._clock())
        if len(self._now.transfers) >= _MOST_TRANSFERS:
            self._now = StepEvents(transfer.begin_s)
        self._now.transfers.append(transfer)

        def ended(_: Any) -> None:
            transfer.end_s = self._clock()

        AWAITED.add(ended)
        with contextlib.suppress(RuntimeError):  # torch's debugging of collectives has works without one
            work.get_future().add_done_callback(ended)

    def end_step(self) -> None:
        """Note that the optimizer's step is over."""
        with self._lock:
            self._now.end_s = self._clock()
            if self.steps:
                self._whole.append(self._now)
            self.steps += 1
            self._now = StepEvents(self._now.end_s)
