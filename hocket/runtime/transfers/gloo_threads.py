"""Threads of gloo's at the end of the interpreter: they abort the process if they ask for its lock then.

One does so to call a callback, to give one back, and to give back a tensor that Python has, too: after the
end of its collective, so that a rank that waited for it may be at its own end by then.
"""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

AWAITED: weakref.WeakSet[Callable[[Any], None]] = weakref.WeakSet()
"""Callbacks of collectives; each goes when gloo has called it and given it back."""

_LONGEST_S = 5.0
_GLANCE_S = 0.001
_NAME = "pt_gloo_runloop"
_TASKS = Path("/proc/self/task")


def _are_idle(tasks: Path = _TASKS) -> bool:
    """True if each of gloo's threads sleeps, as one does that waits for work; also where none can be seen."""
    for stat in tasks.glob("*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        if name == _NAME and rest.split()[0] != "S":
            return False
    return True


def wait_at_end() -> None:
    """Have the end of the interpreter wait, at most 5 s, until gloo's threads want nothing of it."""
    atexit.unregister(_wait_for_last)
    atexit.register(_wait_for_last)


def _wait_for_last() -> None:
    deadline = time.monotonic() + _LONGEST_S
    while True:
        # Meanwhile a thread that waits for the interpreter's lock gets it, or is seen to be awake afterwards.
        time.sleep(_GLANCE_S)
        if (not AWAITED and _are_idle()) or time.monotonic() > deadline:
            return
