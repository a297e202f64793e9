"""A user's code in this process ends when it is stopped, with all that it started, wherever it waits."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import threading
import time
from types import TracebackType

from hocket.ending import signal_each
from hocket.process_stats import PROC, ProcessStat, descendants, process_stats
from hocket.signals import uninterrupted

_GRACE_S = 5.0
_CHILDREN_S, _GLANCE_S = 1.0, 0.05
_STOPS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
_OVER = 0  # no signal's number
_TRACKER = b"multiprocessing.resource_tracker"


class Stoppable:
    """Context in which a stop ends this process some seconds later, where its handlers have not done so.

    Python's handlers run between two instructions of the main thread, and there are none while that waits in
    C++ or at the interpreter's end for other threads. So a thread reads which signals came, from the socket
    that Python's own handler writes each one's number to. A handler of the user's has the same time to save
    what it wants to; code that ends without an exception has outlived the stop. Otherwise what the user's
    code has started is ended, too.

    A context of the main thread.
    """

    def __init__(self) -> None:
        self._status: int | None = None
        self._read = threading.Event()
        self._over = threading.Event()
        self._ending = threading.Lock()

    def __enter__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        number = self._sender.fileno()
        self._earlier = signal.set_wakeup_fd(number, warn_on_full_buffer=False)
        # A process that is forked here writes to the same socket, until it is told to let go of it.
        os.register_at_fork(after_in_child=functools.partial(_let_go, number))
        threading.Thread(target=self._watch, daemon=True, name="hocket-stop").start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with uninterrupted():
            signal.set_wakeup_fd(self._earlier, warn_on_full_buffer=False)
            with contextlib.suppress(
                BlockingIOError
            ):  # full of signals that follow a stop, which nobody reads
                self._sender.send(bytes([_OVER]))
            self._read.wait(_GRACE_S)
            if error is None:
                with self._ending:
                    self._over.set()
            elif self._status is not None:
                _end_all_started()
            self._sender.close()
            self._receiver.close()

    def _watch(self) -> None:
        number = self._receiver.recv(1)[0]
        while number not in {*_STOPS, _OVER}:
            number = self._receiver.recv(1)[0]
        if number == _OVER:
            self._read.set()
            return
        status = self._status = 128 + number
        self._read.set()
        if self._over.wait(_GRACE_S):
            return
        with self._ending:
            if not self._over.is_set():
                _end_all_started()
                os._exit(status)


def _let_go(number: int) -> None:
    current = signal.set_wakeup_fd(-1)
    if current != number:  # a user's own
        signal.set_wakeup_fd(current)


def _end_all_started() -> None:
    """End the processes that this one has started, and theirs: ask, then make them."""
    started = _started()
    signal_each(started, signal.SIGTERM)
    until_s = time.monotonic() + _CHILDREN_S
    while started and time.monotonic() < until_s:
        time.sleep(_GLANCE_S)
        running = _running()
        started = {
            pid: began for pid, began in started.items() if pid in running and running[pid].began == began
        }
        # One that it started since; those whose parents have ended are not found again.
        started |= _started()
    signal_each(started, signal.SIGKILL)


def _started() -> dict[int, str]:
    """The processes that descend from this one, and when each began."""
    running = _running()
    return {pid: running[pid].began for pid in descendants(running, os.getpid())}


def _running() -> dict[int, ProcessStat]:
    """The processes of this machine that have not ended.

    Without multiprocessing's trackers: they end with those who use them, and remove what these leave.
    """
    return {pid: stat for pid, stat in process_stats().items() if stat.state != "Z" and not _is_tracker(pid)}


def _is_tracker(pid: int) -> bool:
    try:
        return _TRACKER in (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return False
