"""Links that connections share evenly, whatever travels the other way.

Simulations and predictions take equal shares for granted, which TCP does not give. In the queue of a link
each connection has what its congestion window let into it, and that depends on what it did before, for as
long as it lives:
of two workers that push to one server the second got 26% to 44% of the link in one lab, and 62% to 83% in
another one. So each peer has a queue of its own (:func:`shaper`), and queues have their turns by bytes
(deficit round robin, which is what htb does between classes of one priority). And routes bound the window,
and let it be as large from the first moment on, also after a pause: each connection has the same number of
segments on the way, and no more, so that also those of one peer share what it has.

The kernel takes that bound from its memory of earlier connections to the same address (``ip tcp_metrics``),
where a route's bound comes only once one has ended. :func:`introduce` sees to that.

With a bounded window a connection is as fast as its acknowledgements come back. In a queue that all share
they wait behind what others send the other way: one worker that pulls while three push would have a third of
a link that nobody else uses. So short packets go first.

And a link that was idle gives a burst to the first connection. With 256 KiB at 250 Mbit/s, 8 ms of the link,
asynchronous workers drifted apart by 10 ms a step, and shared less and less. So bursts are half a
millisecond, where that is no more than 256 KiB, and TCP hands over half of that at once, not 64 KiB.

Many small packets take processors, also from computing: at 250 Mbit/s an all-reduce keeps two of them
busy for 14% of its time, and for 4% in packets of 64 KiB. In a ring each link serves one connection, which
shares it with nobody; so training by AllReduce has the larger ones (``tso_bytes``).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from itertools import combinations

from hocket.errors import HocketError
from hocket.lab.namespaces import go_to

SEGMENT_BYTES, FRAME_BYTES = 1448, 1514  # of data, and with its headers
CONNECTIONS = 64  # that a link's queue has room for
_SHORT = "match u16 0x0000 0xff00 at 2"  # an IP packet of at most 255 bytes: its length is at byte 2
_UNBOUNDED = "rate 10gbit ceil 100gbit burst 1mb cburst 1mb"
_MOST_PEERS = 32  # with a queue of their own; in labs of more nodes several share one
_SOURCE_AT, _DESTINATION_AT = 12, 16  # addresses in the header of an IP packet
TSO_BYTES = 65_536  # that TCP hands over at once where cards, or nobody, say otherwise
_TOGETHER_S, _FEWEST_TOGETHER, _MOST_TOGETHER = 0.25e-3, 2, 44  # in segments; 44 are 64 KiB with headers
_BURST_S, _MOST_BURST_BYTES = 0.5e-3, 262_144
_FEWEST_SEGMENTS = 64  # of a connection on the way,
_LONGEST_S = 1e-3  # or those of so long at the lab's rate, if these are more
_WAIT_S = 10.0


def segments_on_the_way(rate_bps: float) -> int:
    """The most segments of a connection that are on the way at a time."""
    return max(_FEWEST_SEGMENTS, round(rate_bps / 8 * _LONGEST_S / SEGMENT_BYTES))


def segments_together(rate_bps: float, tso_bytes: float | None = None) -> int:
    """The most segments that TCP hands over at once, as one packet to all queues on the way.

    Raises
    ------
    HocketError
        For ``tso_bytes`` that are fewer than two segments' or more than TCP's own limit.
    """
    if tso_bytes is None:
        return min(_MOST_TOGETHER, max(_FEWEST_TOGETHER, round(rate_bps / 8 * _TOGETHER_S / SEGMENT_BYTES)))
    if not _FEWEST_TOGETHER * SEGMENT_BYTES <= tso_bytes <= TSO_BYTES:
        raise HocketError(
            f"TCP cannot hand {tso_bytes:g} B over at once; choose {_FEWEST_TOGETHER * SEGMENT_BYTES} B to"
            f" {TSO_BYTES} B"
        )
    return min(_MOST_TOGETHER, int(tso_bytes // SEGMENT_BYTES))


def burst_bytes(rate_bps: float, together: int) -> int:
    """Bytes that an idle link lets through at once; ``together``: segments that come as one packet."""
    return min(_MOST_BURST_BYTES, max(together * FRAME_BYTES, round(rate_bps / 8 * _BURST_S)))


def shaper(
    device: str,
    rate_bps: float,
    *,
    together: int,
    peers: Collection[str] = (),
    to_peers: bool = True,
    classes: bool = True,
) -> list[str]:
    """``tc``'s lines that hold what ``device`` sends to ``rate_bps``; of it, short packets first.

    ``together``: segments that come as one packet. ``peers``: addresses, /24 alike, that share the rest
    evenly, to which it sends, or from which it forwards.
    Without ``classes`` there is one queue for all.
    """
    limit = f"limit {CONNECTIONS * segments_on_the_way(rate_bps) * FRAME_BYTES}"
    shape = f"rate {round(rate_bps)}bit burst {burst_bytes(rate_bps, together)} {limit}"
    shaped = [f"qdisc add dev {device} root handle 1: tbf {shape}"]
    if not classes:
        return shaped
    last_byte = (_DESTINATION_AT if to_peers else _SOURCE_AT) + 3
    own = sorted({int(peer.rpartition(".")[2]) % _MOST_PEERS for peer in peers})
    shared = f"{_UNBOUNDED} quantum {together * FRAME_BYTES}"
    queues = [("2:1", 0, _SHORT), ("2:2", 1, None)]
    queues += [(f"2:{3 + key:x}", 1, f"match u8 {key:#x} {_MOST_PEERS - 1:#x} at {last_byte}") for key in own]
    shaped.append(f"qdisc add dev {device} parent 1:1 handle 2: htb default 2")
    for queue, priority, matched in queues:
        shaped.append(f"class add dev {device} parent 2: classid {queue} htb prio {priority} {shared}")
        shaped.append(f"qdisc add dev {device} parent {queue} bfifo {limit}")
        if matched is not None:
            of = f"parent 2: prio {priority + 1} protocol ip u32 {matched}"
            shaped.append(f"filter add dev {device} {of} flowid {queue}")
    return shaped


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
            go_to(namespace)
            listening.append(stack.enter_context(socket.create_server((address, 0))))
        for one, other in combinations(range(len(places)), 2):
            go_to(places[one][0])
            with socket.create_connection(listening[other].getsockname(), timeout=_WAIT_S):
                listening[other].settimeout(_WAIT_S)
                listening[other].accept()[0].close()
