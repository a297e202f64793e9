"""Processes that hold a lab for as long as they live, told apart from later ones of the same number."""

from __future__ import annotations

import os

from hocket.process_stats import process_stat


def myself() -> str:
    """This process, in a few words that no other one on this machine has."""
    return _holder(os.getpid())


def has_ended(holder: str) -> bool:
    """True if a process, as it called itself, has ended; False of one whom we could not see if it had not."""
    pid, _, rest = holder.partition(" ")
    if rest.partition(" ")[0] != _numbering() or not pid.isdecimal():
        return False
    try:
        return _holder(int(pid)) != holder
    except FileNotFoundError:
        return True


def _holder(pid: int) -> str:
    return f"{pid} {_numbering()} {process_stat(pid).began}"


def _numbering() -> str:
    """The namespace in which this process's number is its number."""
    return os.readlink("/proc/self/ns/pid")
