"""A TCP port for a process that is yet to be started, and that others are told of before it listens.

It imports the standard library alone: a lab's nodes run it as a script.
"""

from __future__ import annotations

import errno
import random
import socket
import sys
from pathlib import Path

_FOR_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _HIGHEST = 10_000, 65_534
_TRIES = 100


def free_port(host: str, for_connections: Path = _FOR_CONNECTIONS) -> int:
    """A port of ``host`` that nothing listens at, nor at the next one, which parameter servers' store gets.

    It is drawn from outside of ``for_connections``, the first and the last port that the kernel gives to
    connections: one of those may be a connection's own by the time that the process listens.

    Raises
    ------
    OSError
        When ``host`` is not this machine's.
    """
    drawn = random.Random()  # a script's seed would have all of its jobs draw the same one
    candidates = _outside(for_connections)
    for _ in range(_TRIES if candidates else 0):
        port = drawn.choice(candidates)
        if _is_free(host, port) and _is_free(host, port + 1):
            return port
    with socket.create_server((host, 0)) as unused:
        return int(unused.getsockname()[1])


def _outside(for_connections: Path) -> list[int]:
    """Even ports, so that no two results overlap."""
    try:
        first, last = map(int, for_connections.read_text().split())
    except (OSError, ValueError):  # no Linux
        first, last = 32_768, 65_535
    return [port for port in range(_LOWEST, _HIGHEST + 1, 2) if port + 1 < first or port > last]


def _is_free(host: str, port: int) -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise


if __name__ == "__main__":
    print(free_port(sys.argv[1]))
