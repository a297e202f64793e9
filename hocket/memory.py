"""Memory that is there, and the refusal of what would need more of it."""

from __future__ import annotations

import os
from pathlib import Path

from hocket.errors import HocketError

_UNCHECKED_BYTES = 1e8  # what any machine has
_GROUP = Path("/sys/fs/cgroup")


def check_memory(needed_bytes: float, what: str, fix: str) -> None:
    """Refuse ``what`` before it begins, if it needs more memory than is there.

    Raises
    ------
    HocketError
        Naming what is needed and what is there.
    """
    if needed_bytes <= _UNCHECKED_BYTES:
        return
    there = available_bytes()
    if needed_bytes > there:
        raise HocketError(
            f"{what} need about {needed_bytes / 1e9:.3g} GB of memory,"
            f" and {there / 1e9:.3g} GB are there; {fix}"
        )


def available_bytes() -> float:
    """Memory that can be taken without swapping, also within a control group's limit."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        there = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not on Linux: all that the machine has
        there = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        limit = float((_GROUP / "memory.max").read_text())
        there = min(there, limit - float((_GROUP / "memory.current").read_text()))
    except (OSError, ValueError):  # without a group, or one without a limit
        pass
    return max(0.0, there)
