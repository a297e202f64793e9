"""Processes that hold a lab for as long as they live, told apart from later ones of the same number."""

from __future__ import annotations

import os

from hocket.process_stats import process_stat


def own_holder() -> str:
    """This process by number, namespace and start, which no other process of this machine shares."""
    return _holder(os.getpid())


def has_ended(holder: str) -> bool:
    """True if ``holder`` has ended; False of a process of another pid namespace, which is not seen here."""
    pid, _, rest = holder.partition(" ")
    if rest.partition(" ")[0] != _pid_namespace() or not pid.isdecimal():
        return False
    try:
        return _holder(int(pid)) != holder
    except FileNotFoundError:
        return True


def _holder(pid: int) -> str:
    return f"{pid} {_pid_namespace()} {process_stat(pid).began}"


def _pid_namespace() -> str:
    """The namespace in which this process's number is its number."""
    return os.readlink("/proc/self/ns/pid")
