"""Links that connections share evenly: each has the same number of segments on the way, and no more.

What simulations and predictions take for granted, TCP does not give. In the queue of a link each connection
has what its congestion window let into it, and that depends on what it did before, for as long as it lives:
of two workers that push to one server the second got 26% to 44% of the link in one lab, and 62% to 83% in
another one. So routes bound the window, and let it be as large from the first moment on, also after a pause.

The kernel takes that bound from its memory of earlier connections to the same address (``ip tcp_metrics``),
where a route's bound comes only once one has ended. :func:`introduce` sees to that.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import combinations

from hocket.errors import HocketError

SEGMENT_BYTES, FRAME_BYTES = 1448, 1514  # of data, and with its headers
CONNECTIONS = 64  # that a link's queue has room for
_FEWEST_SEGMENTS = 64  # of a connection on the way,
_LONGEST_S = 1e-3  # or those of so long at the lab's rate, if these are more
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_WAIT_S = 10.0


def segments_on_the_way(rate_bps: float) -> int:
    """How many segments of a connection are on the way at most."""
    return max(_FEWEST_SEGMENTS, round(rate_bps / 8 * _LONGEST_S / SEGMENT_BYTES))


def introduce(places: Sequence[tuple[str, str]]) -> None:
    """Open and close a connection between any two of ``places``, each a namespace and an address in it.

    Raises
    ------
    HocketError
        When one cannot be made.
    """
    failed: list[OSError] = []

    def meet() -> None:
        try:
            _meet(places)
        except OSError as error:
            failed.append(error)

    # A thread can go to other namespaces and leave this process where it is.
    meeting = threading.Thread(target=meet, name="hocket-lab")
    meeting.start()
    meeting.join()
    if failed:
        raise HocketError(f"the lab's nodes do not reach each other: {failed[0]}; make the lab anew")


def _meet(places: Sequence[tuple[str, str]]) -> None:
    with ExitStack() as stack:
        listening = []
        for namespace, address in places:
            _go_to(namespace)
            listening.append(stack.enter_context(socket.create_server((address, 0))))
        for one, other in combinations(range(len(places)), 2):
            _go_to(places[one][0])
            with socket.create_connection(listening[other].getsockname(), timeout=_WAIT_S):
                listening[other].settimeout(_WAIT_S)
                listening[other].accept()[0].close()


def _go_to(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(descriptor, _NEW_NETWORK) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)
    finally:
        os.close(descriptor)
