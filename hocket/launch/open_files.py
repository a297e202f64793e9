"""Limits on open files: managers and servers have a connection with every rank or worker.

Ranks get the limit that this process began with. A program that waits by select(2) knows no file beyond the
1024th, so it is better off where it cannot open that many.
"""

from __future__ import annotations

import resource

from hocket.errors import HocketError

BEGAN_WITH = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""The limit that this process has inherited; 1024 where nobody has changed it."""


_MOST_STRANGERS = 256
_FILES_PER_STRANGER = 16


def allow_all() -> int:
    """Let this process open all files that it ever may; how many those are."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def most_strangers(files: int) -> int:
    """The connections of unknown callers that a process that may open so many files looks at at a time."""
    return max(1, min(_MOST_STRANGERS, files // _FILES_PER_STRANGER))


def allow_ranks(ranks: int) -> int:
    """Let this process open all files that it ever may, three quarters of them for ranks; how many those are.

    Raises
    ------
    HocketError
        When they are fewer than ``ranks``.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most * 3 // 4 < ranks:
        raise HocketError(
            f"{ranks} GPUs: each has a rank with a connection of its own, and of the {most} files that this "
            f"process may open (ulimit -Hn) three quarters are for those; allow it {-(-ranks * 4 // 3)}, or "
            "give it fewer GPUs"
        )
    return allow_all() * 3 // 4
