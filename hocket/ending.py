"""Ending processes: those that this one has started, and others by their numbers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence

from hocket.errors import HocketError

Steps = Sequence[tuple[signal.Signals, float]]

#: Steps by which processes are made to end: a signal, and the seconds that it may take to work.
TERMINATE: Steps = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0))
_REAP_S = 10.0


def kill(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill ``processes``, which hold nothing worth keeping, and wait until they have ended."""
    killed = list(processes)
    for process in killed:
        process.kill()
    for process in killed:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for the kernel
            process.wait(_REAP_S)


def signal_each(pids: Iterable[int], number: int) -> None:
    """Send a signal to each of ``pids`` that has not ended and is ours."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_processes(find: Callable[[], list[int]], steps: Steps, wait: Callable[[], None]) -> None:
    """Send what ``find`` finds the signal of each step in turn, until it finds nothing; ``wait`` in between.

    Raises
    ------
    HocketError
        When some are still there after the last step.
    """
    left: list[int] = []
    for number, duration_s in steps:
        deadline_s = time.monotonic() + duration_s
        sent = False
        while left := find():
            if time.monotonic() > deadline_s:
                break
            # A process that starts while others clean up may be part of that, but none may outrun SIGKILL.
            if not sent or number == signal.SIGKILL:
                signal_each(left, number)
                sent = True
            wait()
        else:
            return
    raise HocketError(
        f"processes {', '.join(map(str, left))} do not end on SIGKILL: they wait for the kernel;"
        " /proc/PID/stack says where"
    )
