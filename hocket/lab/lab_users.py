"""Processes that use a lab from outside of it, as a cluster's manager does, each by a socket that names it.

The kernel forgets a socket's name when its process has ended, however that was: nothing is kept anywhere.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SOCKETS = Path("/proc/net/unix")
_NAME = re.compile(r"@hocket-lab/(?P<lab>[^/]+)/(?P<pid>\d+)/\d+", re.ASCII)
_numbers = itertools.count()


@contextmanager
def using(lab: str) -> Iterator[None]:
    """Be among a lab's users meanwhile."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
        mark.bind(f"\0hocket-lab/{lab}/{os.getpid()}/{next(_numbers)}")
        yield


def users_of(lab: str) -> list[int]:
    """The numbers of the processes that use a lab now, the smallest first."""
    try:
        lines = _SOCKETS.read_text(errors="replace").splitlines()
    except OSError:  # a system without it has no labs either
        return []
    names = (_NAME.fullmatch(line.rpartition(" ")[2]) for line in lines)
    return sorted({int(name["pid"]) for name in names if name is not None and name["lab"] == lab})
