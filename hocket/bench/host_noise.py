"""Noise of others on the same host: time that the kernel counts, and speed that it does not.

Others that share physical cores or their memory with this machine slow its processors down. Then the same
work takes more processor time than before, with nothing stolen: up to half as much again, for seconds to
minutes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
    """The result of ``timed``, called up to three times while others use more than ``most`` of processors.

    ``share``: which part of processor time others had of a find. Of several the least disturbed is returned.
    """
    tries = [timed()]
    while len(tries) < _TRIES and share(tries[-1]) > most:
        tries.append(timed())
    return min(tries, key=share)


def slowed(cpu_s: Sequence[float], lasted_s: Sequence[float], most: float) -> list[int]:
    """Places of the runs of the same work that used more processor time than the least did.

    cpu_s: each one's processor time; lasted_s: how long it took; most: which part of that may be more.
    """
    least_s = min(cpu_s)
    pairs = zip(cpu_s, lasted_s, strict=True)
    return [place for place, (used_s, run_s) in enumerate(pairs) if used_s - least_s > most * run_s]
