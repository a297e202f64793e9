"""How many files this process may open: a cluster's manager has a connection with every rank.

Ranks get the limit that this process began with. What waits by select(2) knows no file beyond the 1024th, so
it is better off where it cannot open that many.
"""

from __future__ import annotations

import resource

from hocket.errors import HocketError

BEGAN_WITH = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""The limit that this process has inherited; 1024 where nobody has changed it."""


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
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most * 3 // 4
