"""A capacity: a bound on how many are served at a time; one too many is sent away, which is said once."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Capacity:
    """``most`` places for ``whom``, as messages call them; any thread may ask.

    ``note`` is told when one finds none, and not again before half of them have been free.
    """

    def __init__(self, most: int, whom: str, note: Callable[[str], None]) -> None:
        self._most, self._whom, self._note = most, whom, note
        self._taken = 0
        self._said = False
        self._lock = threading.Lock()

    @property
    def full(self) -> str:
        """A message for those who find no place."""
        return f"there are {self._most} {self._whom}; others are sent away until some have gone"

    def take(self) -> bool:
        """Take a place; whether there was one."""
        with self._lock:
            if self._taken < self._most:
                self._taken += 1
                return True
            said, self._said = self._said, True
        if not said:
            self._note(self.full)
        return False

    def leave(self) -> None:
        """Give a place back."""
        with self._lock:
            self._taken -= 1
            if 2 * self._taken <= self._most:
                self._said = False
