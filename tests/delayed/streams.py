"""Streams of work that is done when somebody waits for it, or sooner, as a seed says.

Nothing is done in a thread of its own: who waits for an event does what is before it, and who asks for work
may do some of its stream's. So each seed is another order of what has no order. Seed 0 has all work as late
as it can be: what nobody waits for is never done. Seed 1 has a device that keeps up with the host, and
transfers that take long. In seed 2 only the first stream keeps up, in seed 3 only the others do, transfers
among them. In the others each stream is early, late or between at random.

The device has a clock: each item takes ``item_s`` there, from when it was asked for, what is before it was
done, and what it follows was; nothing of it has passed before the host's clock says so, too.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Stream:
    """Work in the order in which it is done; ``asked`` and ``done`` count it.

    ``transfers``: it is such; ``keeps_up``: how probably it is done when it is asked for. ``items``: when
    each was asked for, and what does it and returns when that was over at the earliest; None: it is work.
    ``times_s``: when each was over; ``busy_s``: for how long there was work.
    """

    transfers: bool = False
    keeps_up: float = 0.0
    items: deque[tuple[float, Callable[[], float | None]]] = field(default_factory=deque)
    asked: int = 0
    done: int = 0
    busy_s: float = 0.0
    times_s: list[float] = field(default_factory=lambda: [0.0])


@dataclass(frozen=True)
class Event:
    """What ``stream`` had been asked for when its ``number``th item was put, at ``asked_s``."""

    stream: Stream
    number: int
    asked_s: float

    @property
    def time_s(self) -> float:
        """When it was, once it has been."""
        return max(self.asked_s, self.stream.times_s[self.number])


class Streams:
    """The streams of one process; a thread that works for the device has a current one.

    The thread that makes them has ``first``.
    """

    def __init__(self, seed: int, item_s: float = 0.0) -> None:
        self._item_s = item_s
        self._lock = threading.RLock()
        self._here = threading.local()
        self._random = random.Random(seed)
        self._seed = seed
        self._longest_s = {0: 0.0, 1: 0.004, 2: 0.0, 3: 0.0}.get(seed, self._random.choice((0.0, 0.002)))
        self.first = self._here.stream = Stream(keeps_up=float(seed in (1, 2)) if seed < 4 else self._draw())

    def new(self, *, transfers: bool = False) -> Stream:
        """A further stream."""
        early = (
            self._draw() if self._seed >= 4 else float(self._seed == 3 or (self._seed == 1 and not transfers))
        )
        return Stream(transfers, early)

    def _draw(self) -> float:
        return self._random.choice((0.0, 1.0, self._random.random()))

    @property
    def current(self) -> Stream:
        """This thread's stream; a thread that has none does not work for the device."""
        stream: Stream | None = getattr(self._here, "stream", None)
        if stream is None:
            raise LookupError(f"thread {threading.current_thread().name} has no stream of the device")
        return stream

    @property
    def working(self) -> bool:
        """True within an item: what is called then is to be done now."""
        return bool(getattr(self._here, "working", False))

    @contextmanager
    def now(self) -> Iterator[None]:
        """Within, what is called is done at once."""
        before, self._here.working = self.working, True
        try:
            yield
        finally:
            self._here.working = before

    @contextmanager
    def on(self, stream: Stream | None = None) -> Iterator[Stream]:
        """Within, ``stream``, else a new one, is this thread's."""
        stream = self.new() if stream is None else stream
        before, self._here.stream = getattr(self._here, "stream", None), stream
        try:
            yield stream
        finally:
            self._here.stream = before

    def put(self, item: Callable[[], float | None]) -> None:
        """Have ``item`` done on the current stream, later."""
        with self._lock:
            stream = self.current
            stream.items.append((time.perf_counter(), item))
            stream.asked += 1
            if self._random.random() < stream.keeps_up:
                self._run(stream, stream.asked)

    def record(self) -> Event:
        with self._lock:
            return Event(self.current, self.current.asked, time.perf_counter())

    def wait(self, event: Event) -> None:
        """The host waits: all that is before ``event`` is done."""
        if event.stream.transfers and self._longest_s:
            time.sleep(self._random.uniform(self._longest_s / 2, self._longest_s))
        with self._lock:
            self._run(event.stream, event.number)
        if self._item_s:
            time.sleep(max(0.0, event.time_s - time.perf_counter()))

    def follow(self, event: Event) -> None:
        """What the current stream is asked for from now on is done behind ``event``."""
        if event.stream is not self.current:
            self.put(lambda: self._time_of(event))

    def has_passed(self, event: Event) -> bool:
        with self._lock:
            return event.stream.done >= event.number and event.time_s <= time.perf_counter()

    def _time_of(self, event: Event) -> float:
        self._run(event.stream, event.number)
        return event.time_s

    def _run(self, stream: Stream, number: int) -> None:
        with self.now():
            while stream.done < number:
                asked_s, item = stream.items.popleft()
                begun_s = max(asked_s, stream.times_s[-1])
                over_s = item()
                stream.busy_s += self._item_s if over_s is None else 0.0
                stream.times_s.append(begun_s + self._item_s if over_s is None else max(begun_s, over_s))
                stream.done += 1


def nothing(*_: Any) -> None:
    """Do nothing: what a wait is that was left out."""
