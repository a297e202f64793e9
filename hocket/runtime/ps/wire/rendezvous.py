"""A rendezvous: the store where both ends of a connection leave their addresses, open to nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from torch._C._distributed_c10d import Store


class Rendezvous(Store):
    """Addresses that two ranks exchange before they are connected: each key is set by one, got by the other.

    ``send`` brings a key and its value to the other side, which calls :meth:`put`.
    """

    def __init__(self, send: Callable[[str, bytes], None], timeout_s: float) -> None:
        super().__init__()
        self._send = send
        self._timeout_s = timeout_s
        self._values: dict[str, bytes] = {}
        self._condition = threading.Condition()
        self._failure = ""

    def put(self, key: str, value: bytes) -> None:
        """The other rank has set ``key``."""
        with self._condition:
            self._values[key] = value
            self._condition.notify_all()

    def fail(self, why: str) -> None:
        """The other rank is not going to set anything any more."""
        with self._condition:
            self._failure = self._failure or why
            self._condition.notify_all()

    # Methods that gloo calls.

    def set(self, key: str, value: bytes) -> None:  # type: ignore[override]  # noqa: D102
        self.put(key, value)
        self._send(key, value)

    def get(self, key: str) -> bytes:  # noqa: D102
        self.wait([key], timedelta(seconds=self._timeout_s))
        return self._values[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:  # noqa: D102
        seconds = self._timeout_s if timeout is None else min(self._timeout_s, timeout.total_seconds())
        with self._condition:
            there = self._condition.wait_for(
                lambda: self._failure or all(k in self._values for k in keys), seconds
            )
        if self._failure or not there:
            raise RuntimeError(self._failure or f"the peer did not say where it is within {seconds:g} s")

    def check(self, keys: list[str]) -> bool:  # noqa: D102
        with self._condition:
            return all(key in self._values for key in keys)
