"""The processors that this program and others use while a step is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hocket.process_stats import PROC, descendants, process_stats

_IDLE, _IOWAIT, _GUEST = 3, 4, 8
"""Places in the first line of ``/proc/stat``, after its name: a guest's time is the user's too."""
_MUCH = 0.1  # of all processors: with less of them others disturb a step hardly
_FULL = 0.85  # of all processors: with less of them in use there was room for the step


_LOOK_S = 2.0  # from one look at the machine to the next: what others do for less is no news


class MachineUse(NamedTuple):
    """Means over a measurement."""

    own: float
    """Processors that this program, its job's other ranks here and what they started used."""
    others: float
    """Processors that all other programs used, and those that the machine's host kept for itself."""
    processors: int
    """Processors of the machine."""

    @property
    def crowded(self) -> bool:
        """True if others used so much that the step may have been slower than by itself."""
        return self.others > _MUCH * self.processors and self.own + self.others > _FULL * self.processors


class UseMeter:
    """A meter of the machine's use, from when it is made on. ``proc`` is the kernel's file system."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._begin = self._read()

    def use(self) -> MachineUse | None:
        """The use so far; None where the kernel does not count it, and within a clock tick."""
        begin, end = self._begin, self._read()
        if begin is None or end is None or end.at_s - begin.at_s < 1 / _TICKS:
            return None
        lasted_s = end.at_s - begin.at_s
        own = max(0.0, end.own_s - begin.own_s) / lasted_s
        all_of_them = max(0.0, end.all_s - begin.all_s) / lasted_s
        return MachineUse(own, max(0.0, all_of_them - own), end.processors)

    def _read(self) -> _Reading | None:
        try:
            lines = (self._proc / "stat").read_text().splitlines()
            processes = process_stats(self._proc)
            # Of a launcher's ranks on this machine, all: they take their share in each step of the training.
            root = os.getppid() if os.environ.get("LOCAL_WORLD_SIZE", "1") != "1" else os.getpid()
            ours = {root, *descendants(processes, root)}
            own = sum(processes[pid].ticks for pid in ours)
        except (OSError, ValueError, IndexError, KeyError):
            return None
        ticks = [int(field) for field in lines[0].split()[1:]]
        busy = sum(ticks[:_GUEST]) - ticks[_IDLE] - ticks[_IOWAIT]
        count = sum(line.startswith("cpu") for line in lines) - 1
        return _Reading(time.perf_counter(), busy / _TICKS, own / _TICKS, count)


class BusyNotice:
    """A line, once, as soon as others are seen to use the machine; :meth:`look` is for between steps."""

    def __init__(self, tell: Callable[[str], object], meter: Callable[[], UseMeter] = UseMeter) -> None:
        self._tell, self._make_meter = tell, meter
        self._told = False
        self._begin()

    def _begin(self) -> None:
        self._meter: UseMeter | None = self._make_meter()
        self._since_s = time.perf_counter()

    def look(self) -> None:
        """Tell of others, if they used much of the machine for the last seconds."""
        if self._meter is None or time.perf_counter() - self._since_s < _LOOK_S:
            return
        use = self._meter.use()
        if use is None or not use.crowded:
            self._begin()
            return
        self._meter, self._told = None, True
        self._tell(
            f"other programs use {use.others:.1f} of {use.processors} processors while steps are measured,"
            " which makes computing look too slow: end them, or measure again on a quiet machine"
        )

    def end(self, use: MachineUse | None) -> None:
        """Take back what was told of others, if by ``use``, of all steps, they disturbed little."""
        if not self._told or use is None or use.crowded:
            return
        self._tell(
            f"over all steps other programs used {use.others:.1f} of {use.processors} processors and this one"
            f" {use.own:.1f}: below what is kept as a caution, so the step file has none of that"
        )


class _Reading(NamedTuple):
    """Seconds for which all processors were in use until now, and for this program; and their number."""

    at_s: float
    all_s: float
    own_s: float
    processors: int


_TICKS = os.sysconf("SC_CLK_TCK")
