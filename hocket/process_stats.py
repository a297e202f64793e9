"""Processes of this machine, as the kernel tells of them under ``/proc``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

PROC = Path("/proc")


class ProcessStat(NamedTuple):
    """One line of ``/proc/PID/stat``."""

    state: str
    """A letter: Z of a process that has ended and that its parent has not waited for."""
    parent: int
    ticks: int
    """Of processors, by it and by its children that have ended."""
    began: str
    """Ticks since the machine's start: with its number it names a process."""


def process_stat(pid: int, proc: Path = PROC) -> ProcessStat:
    """The line of process ``pid``; OSError where there is none."""
    # The name, which comes second, can have spaces and parentheses in it.
    fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return ProcessStat(fields[0], int(fields[1]), sum(map(int, fields[11:15])), fields[19])


def process_stats(proc: Path = PROC) -> dict[int, ProcessStat]:
    """The line of every process, by its number."""
    found = {}
    for pid in all_pids(proc):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found[pid] = process_stat(pid, proc)
    return found


def all_pids(proc: Path = PROC) -> list[int]:
    """The number of every process, in order."""
    return sorted(int(entry) for entry in os.listdir(proc) if entry.isdecimal())


def first_environment(pid: int | Literal["self"]) -> dict[str, str]:
    """The variables that a process began with; OSError where it has ended or is another user's."""
    told = (PROC / str(pid) / "environ").read_bytes()
    variables = (os.fsdecode(each).partition("=") for each in told.split(b"\0") if each)
    return {name: value for name, _, value in variables}


def descendants(processes: Mapping[int, ProcessStat], root: int) -> set[int]:
    """The numbers of all ``processes`` that ``root`` has started, and that these have."""
    found: set[int] = set()
    generation = {root}
    while generation:
        generation = {pid for pid, stat in processes.items() if stat.parent in generation} - found
        found |= generation
    return found
