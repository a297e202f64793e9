"""Threads that wait for each other's work, and are woken when there is something for them to do.

A condition wakes everybody at every change. Of a channel's threads all but one or two look in vain then, and
each look takes the interpreter from the thread that trains.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

Predicate = Callable[[], bool]


class PredicateCondition:
    """A lock (``with``), and what threads that hold it wait for: each for something of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may wait in the middle of anything
        self._waiting: list[tuple[Predicate, threading.Condition]] = []

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def notify(self) -> None:
        """Something has changed: wake those whose ``predicate`` holds now. In the lock."""
        for predicate, condition in tuple(self._waiting):
            if predicate():
                condition.notify()

    def wait_for(self, predicate: Predicate, timeout_s: float | None = None) -> bool:
        """Wait until ``predicate()`` holds, for at most ``timeout_s``; whether it does. In the lock."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        condition = threading.Condition(self._lock)
        entry = predicate, condition
        self._waiting.append(entry)
        try:
            while not predicate():
                left_s = None if end_s is None else end_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                condition.wait(left_s)
            return True
        finally:
            self._waiting.remove(entry)
