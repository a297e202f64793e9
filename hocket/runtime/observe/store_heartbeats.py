"""The signs that ranks leave in the job's store, and the process that serves it staying for them."""

from __future__ import annotations

import atexit
import threading
import time
from datetime import timedelta
from typing import Any

import msgspec

from hocket.runtime.observe.lost_ranks import Sign

PATIENCE_S = 5.0
"""Longest wait for signs that are not there, or not yet the last ones."""

_GLANCE_S = 0.02


class StoreHeartbeats:
    """All ranks' signs, read through ``store``; ``store_holder`` is what holds them, if this process does."""

    def __init__(self, store: Any, num_ranks: int, store_holder: Any) -> None:
        self._store, self._num_ranks, self._store_holder = store, num_ranks, store_holder

    def read(self) -> list[Sign] | None:
        """Every rank's last sign; None where the store is gone or one is missing."""
        try:
            keys = [f"sign/{rank}" for rank in range(self._num_ranks)]
            self._store.wait(keys, timedelta(seconds=PATIENCE_S))
            return [msgspec.json.decode(value, type=Sign) for value in self._store.multi_get(keys)]
        except Exception:
            return None

    def are_last(self) -> bool:
        """Tell whether no rank is going to leave another sign, or nobody can."""
        signs = self.read()
        return signs is None or all(sign.finished for sign in signs)


_outliving_signs: list[StoreHeartbeats] = []
"""Signs in stores of this process, of trainings that are over on this rank."""


def see_off(signs: StoreHeartbeats) -> None:
    """Let ``signs`` outlive the training: this process, at its end, waits some seconds for the last ones.

    Torch prints a trace in each process that calls a store which is gone. A process that goes on, where a
    model is detached or collected as garbage, waits for nobody.
    """
    _outliving_signs.append(signs)
    if not threading.main_thread().is_alive():  # nothing more is registered by then
        _wait_for_last()
    elif len(_outliving_signs) == 1:
        atexit.register(_wait_for_last)


def _wait_for_last() -> None:
    deadline = time.monotonic() + PATIENCE_S
    while _outliving_signs:
        signs = _outliving_signs.pop()
        while time.monotonic() < deadline and not signs.are_last():
            time.sleep(_GLANCE_S)
