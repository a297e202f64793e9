"""Signals that stop a command: Ctrl-C, SIGTERM or a closed terminal unwind it, and it cleans up."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from types import FrameType
from typing import NoReturn

_STOPS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
_AGAIN_S = 0.05
_SAME_S = 1.0  # stops that follow each other faster are one
_IMPORT_LOCK = ("<frozen importlib._bootstrap>", "cb")


class _Told(threading.local):
    """The event that tells the threads of a call to end, of each thread that is a part of one."""

    end: threading.Event | None = None


_told = _Told()


def look() -> None:
    """Raise CancelledError on a thread that :func:`told_by` its caller to end; loops call it now and then."""
    if _told.end is not None and _told.end.is_set():
        raise CancelledError


@contextlib.contextmanager
def told_by(end: threading.Event) -> Iterator[None]:
    """Let ``end`` end what this thread runs; signals reach only Python's main thread."""
    earlier, _told.end = _told.end, end
    try:
        yield
    finally:
        _told.end = earlier


class Stop(SystemExit):
    """SystemExit of a command that is stopped; handlers of what a user's code raises let it through.

    Unlike the built-in one it can be referred to weakly.
    """


class _Unwinding:
    """The stop that is under way.

    Python drops an exception that comes up in a finalizer, a weak reference's callback (its import lock has
    one) or a function that a C library called. The program would then go on as if nothing had happened, so a
    timer looks whether the exception still lives and raises another where it does not. Nor is it raised
    where LLVM's objects are halfway between two owners, which would free them twice, or in that callback of
    the import lock, of which Python would print a traceback.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.began_s = -math.inf
        self.exception: weakref.ref[Stop] | None = None

    def begin(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() < self.began_s + _SAME_S:
            return  # timeout tells its command and its group, which would end what cleans up
        self.began_s, self.status = time.monotonic(), 128 + number
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
        self._raise(frame)

    def again(self, _number: int, frame: FrameType | None) -> None:
        if self.exception is None or self.exception() is None:
            self._raise(frame)

    def _raise(self, frame: FrameType | None) -> None:
        if frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) == _IMPORT_LOCK:
            return
        while frame is not None:
            if str(frame.f_globals.get("__name__")).startswith("llvmlite"):
                return
            frame = frame.f_back
        raise self._exception()

    def _exception(self) -> Stop:  # no frame of the traceback may hold it, or it would outlive its loss
        stop = Stop(self.status)
        self.exception = weakref.ref(stop)
        return stop


def unwinding(command: Callable[[], NoReturn]) -> NoReturn:
    """Run a command that ends with ``SystemExit(128 + signal)`` when it is stopped.

    So it does where code on the way made another exception of the stop.
    """
    stop = _Unwinding()
    signal.signal(signal.SIGALRM, stop.again)
    signal.signal(signal.SIGINT, stop.begin)
    signal.signal(signal.SIGTERM, stop.begin)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup's wish stays
        signal.signal(signal.SIGHUP, stop.begin)
    try:
        command()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if stop.status is not None:
            raise SystemExit(stop.status)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back what would stop this process, so that nothing is left half done; stops come at the end.

    Off the main thread only for the commands that are started: Python raises nothing there.
    """
    held = _STOPS | {signal.SIGALRM}
    came: list[int] = []
    restore: list[Callable[[], object]] = []
    stop: BaseException | None = None
    try:
        # The undoing of a call is noted first: a stop that another thread took is raised after its effect.
        earlier = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        restore.append(functools.partial(signal.pthread_sigmask, signal.SIG_SETMASK, earlier))
        signal.pthread_sigmask(signal.SIG_BLOCK, held)
        if threading.current_thread() is threading.main_thread():
            # A thread that does not block a stop may take it, and Python's handler then runs in this one.
            for number in held:
                handler = signal.getsignal(number)
                if handler is not None:  # one of a C library's, which Python cannot put back
                    restore.append(functools.partial(signal.signal, number, handler))
                    signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        while restore:
            try:
                while restore:
                    restore[-1]()
                    restore.pop()
            except BaseException as error:  # one that comes as soon as it may
                stop = error
        if stop is not None:
            raise stop
        for again in came:
            signal.raise_signal(again)
