"""Time that the host of a virtual machine gave to others, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

_STAT = Path("/proc/stat")
_STEAL = 8  # user, nice, system, idle, iowait, irq, softirq, steal, after the line's name


def stolen_s() -> float:
    """Seconds so far, the mean over processors; 0 where nobody counts them."""
    if not _STAT.exists():
        return 0.0
    fields = _STAT.read_text().split("\n", 1)[0].split()
    return int(fields[_STEAL]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
