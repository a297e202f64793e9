"""Signs of life: every second each worker writes when it was last alive into a file that its launcher reads.

A process that is stopped, or stuck where no other thread of it runs, gives none; nor does one that is stuck
within a forward or backward pass. The file has no name and is shared: nobody waits to write or read it.
"""

from __future__ import annotations

import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable

EVERY_S = 1.0
LEAST_S = 5.0
"""The shortest silence that counts: a busy machine keeps a thread waiting, too."""
_VARIABLE = "HOCKET_SIGNS"
_SIGN = struct.Struct("d")


class WorkerHeartbeats:
    """The signs of ``workers``, on the launcher's side; a silence of ``limit_s`` is too long."""

    def __init__(self, workers: int, limit_s: float) -> None:
        self._limit_s = max(limit_s, LEAST_S)
        with tempfile.TemporaryFile() as file:
            file.write(_SIGN.pack(time.monotonic()) * workers)  # no room is missed later
            self._fd = os.dup(file.fileno())

    def begin(self, worker: int) -> tuple[dict[str, str], int]:
        """``worker`` is started now: what it is given, variables and a file."""
        _write(self._fd, worker)
        return {_VARIABLE: f"{self._fd} {worker} {self._limit_s}"}, self._fd

    def silence_s(self, worker: int) -> float:
        """For how long ``worker`` has been silent where that is too long, else 0."""
        (last_s,) = _SIGN.unpack(os.pread(self._fd, _SIGN.size, worker * _SIGN.size))
        silent_s = time.monotonic() - float(last_s)
        return silent_s if silent_s > self._limit_s else 0.0

    def close(self) -> None:
        """Nobody is asked about any more."""
        os.close(self._fd)


class Signer:
    """The thread of a worker that gives its signs.

    ``progress``: where the training is within a pass, None outside of one; while that stays the same for too
    long, no sign is given.
    """

    def __init__(self, fd: int, worker: int, limit_s: float) -> None:
        self._fd, self._worker, self._limit_s = fd, worker, limit_s
        self.progress: Callable[[], object] = lambda: None
        self._process = os.getpid()
        self._last: object = None
        self._since_s = time.monotonic()

    def start(self) -> None:
        """Give signs from now on, as long as this process lives."""
        threading.Thread(target=self._run, name="hocket-signs", daemon=True).start()

    def _run(self) -> None:
        while os.getpid() == self._process:
            self.turn()
            time.sleep(EVERY_S)

    def turn(self) -> None:
        """Give a sign unless a pass is stuck."""
        now_s, progress = time.monotonic(), self.progress()
        if progress is None or progress != self._last:
            self._last, self._since_s = progress, now_s
        if now_s - self._since_s <= self._limit_s:
            _write(self._fd, self._worker)


signer: Signer | None = None
"""This process's, where its launcher wants signs."""


def give_signs() -> None:
    """Give signs of life from now on, if the launcher of this process wants them."""
    global signer
    told = os.environ.pop(_VARIABLE, None)  # children are not asked
    if told is None:
        return
    fd, worker, limit_s = told.split()
    os.set_inheritable(int(fd), False)
    signer = Signer(int(fd), int(worker), float(limit_s))
    signer.start()


def _write(fd: int, worker: int) -> None:
    os.pwrite(fd, _SIGN.pack(time.monotonic()), worker * _SIGN.size)
