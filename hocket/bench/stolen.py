"""Time that the host of a virtual machine gave to others, as the kernel counts it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_STAT = Path("/proc/stat")
_TRIES = 3
_STEAL = 8  # user, nice, system, idle, iowait, irq, softirq, steal, after the line's name


def stolen_s() -> float:
    """Seconds so far, the mean over processors; 0 where nobody counts them."""
    if not _STAT.exists():
        return 0.0
    fields = _STAT.read_text().split("\n", 1)[0].split()
    return int(fields[_STEAL]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)


def least_stolen(timed: Callable[[], T], share: Callable[[T], float], most: float) -> T:
    """What ``timed`` found, which is timed again, up to three times, while others have more than ``most``.

    ``share``: which part of processor time others had of a find. Of several the least disturbed is returned.
    """
    tries = [timed()]
    while len(tries) < _TRIES and share(tries[-1]) > most:
        tries.append(timed())
    return min(tries, key=share)
