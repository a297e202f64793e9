"""A job without a program: computing is slept, transfers are those of a ring AllReduce, bytes and all.

One process a GPU, started by a cluster's manager. On several servers one of each server's processes, its
leader, takes part in a ring (Patarasu and Yuan 2009): 2 (n - 1) rounds of an n-th of the bytes, so each
sends 2 (n - 1) / n of them. Nothing is summed up: zeros travel, as they are, between leaders that have met
within TLS. Gradients of the servers' other processes travel inside of servers, which is free here as it is
in the contention paper.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from queue import Empty, Queue, SimpleQueue
from typing import NamedTuple

import msgspec

from hocket.errors import HocketError
from hocket.launch.control import Connection, Guest, TransportError, connect, refuse, welcome
from hocket.launch.credentials import Credentials, credentials_of
from hocket.launch.gate import CHECKPOINT_VARIABLE, Gate, first_iteration, gate_of_environment
from hocket.launch.guarded_listener import GuardedListener
from hocket.launch.job import split_address
from hocket.launch.lost_peers import LOST_PEER, PeerLostError, print_lost

TRAFFIC_VARIABLE = "HOCKET_TRAFFIC"

_MEET_S = 60.0
_PART_BYTES = 1 << 18


class Leader(NamedTuple):
    """A server's process that takes part in the ring: its host:port, and its name as users know it."""

    address: str
    name: str


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic that a rank replays. ``leaders``: each server's, if several; ``place``: in that list.

    ``token``: the credentials that leaders meet with, private key included, "" for other ranks.
    ``chunk_bytes``: after how many bytes it asks again whether it may transfer.
    """

    iterations: int
    forward_s: float
    backward_s: float
    size_bytes: int
    chunk_bytes: int
    leaders: list[Leader]
    place: int | None
    token: str


class Ring:
    """The leaders of a job, each connected to the next; PeerLostError where one of them is not there."""

    def __init__(self, leaders: list[Leader], place: int, credentials: Credentials) -> None:
        self.size = len(leaders)
        self._first = place == 0
        before, behind = leaders[place - 1], leaders[(place + 1) % self.size]
        self._name_before, self._name_behind = before.name, behind.name
        came: SimpleQueue[Connection] = SimpleQueue()
        made: SimpleQueue[Connection | TransportError] = SimpleQueue()

        def placed(guest: Guest, connection: Connection) -> None:
            if guest.role != "leader" or guest.index != (place - 1) % self.size:
                refuse(connection, f"{guest.role} {guest.index} does not come before leader {place}")
                raise TransportError("another leader is to come")
            welcome(connection)
            came.put(connection)

        def reach() -> None:
            try:
                guest = Guest("leader", place, "")
                made.put(connect(behind.address, credentials, guest, _MEET_S))
            except TransportError as error:
                made.put(error)

        with socket.create_server(split_address(leaders[place].address)) as listener:
            door = GuardedListener(listener, credentials, placed, lambda _: None)
            for work in (door.run, reach):
                threading.Thread(target=work, daemon=True).start()
            try:
                previous = came.get(timeout=_MEET_S)
            except Empty:
                raise PeerLostError(f"lost {before.name}: it has not come within {_MEET_S:g} s") from None
            finally:
                with contextlib.suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)  # a thread that accepts there sees its end
        following = made.get()
        if isinstance(following, TransportError):
            raise PeerLostError(f"lost {behind.name}: {following}")
        self._previous, self._next = previous.detach(), following.detach()
        for connected in (self._previous, self._next):
            connected.settimeout(None)  # a policy may hold us as long as it likes; dead peers end it
        self._zeros = memoryview(bytes(_PART_BYTES))
        self._buffer = bytearray(_PART_BYTES)
        self._to_send: Queue[int] = Queue()
        self._send_error: OSError | None = None
        threading.Thread(target=self._send, name="hocket-ring", daemon=True).start()

    def reduce(self, size_bytes: int) -> None:
        """Send and take what an AllReduce of so many bytes does; the first leader begins."""
        # A byte goes round first: nobody sends before the first leader was allowed to.
        if self._first:
            self._pass_on(1)
            self._take(1)
        else:
            self._take(1)
            self._pass_on(1)
        share = -(-size_bytes // self.size)
        for _ in range(2 * (self.size - 1)):
            self._pass_on(share)
            self._take(share)
        self._to_send.join()  # who ends now takes nothing along that others wait for
        self._check_sent()

    def _pass_on(self, count: int) -> None:
        self._to_send.put(count)

    def _take(self, count: int) -> None:
        while count:
            try:
                got = self._previous.recv_into(self._buffer, min(count, _PART_BYTES))
            except OSError as error:
                self._check_sent()
                raise _lost(self._name_before, error) from None
            if not got:
                self._check_sent()
                raise _lost(self._name_before, None)
            count -= got

    def _check_sent(self) -> None:
        if self._send_error is not None:
            raise _lost(self._name_behind, self._send_error)

    def _send(self) -> None:
        while True:
            count = self._to_send.get()
            try:
                while count and self._send_error is None:
                    count -= self._next.send(self._zeros[: min(count, _PART_BYTES)])
            except OSError as error:
                self._send_error = error
                with contextlib.suppress(OSError):
                    self._previous.shutdown(socket.SHUT_RDWR)  # a thread that waits there sees it
            self._to_send.task_done()


def _lost(name: str, error: OSError | None) -> PeerLostError:
    why = "it was closed" if error is None else error.strerror or str(error)
    return PeerLostError(f"lost its connection to {name}: {why}")


def replay(
    traffic: Traffic, gate: Gate | None, ring: Ring | None, begin: int, checkpoint: Path | None, ranks: int
) -> None:
    """Run the iterations from ``begin`` on; after each it keeps how many are over, and of how many ranks."""
    kept = None if checkpoint is None else os.open(checkpoint, os.O_WRONLY | os.O_CREAT, 0o600)
    for iteration in range(begin, traffic.iterations):
        for part, duration_s in enumerate((traffic.forward_s, traffic.backward_s)):
            if gate is not None:
                gate.compute(iteration, part)
            time.sleep(duration_s)
            if gate is not None:
                gate.computed(iteration, part)
        if ring is not None:
            left = traffic.size_bytes
            while left > 0:
                if gate is not None and traffic.place == 0:
                    gate.transfer(iteration, left, traffic.size_bytes)
                ring.reduce(min(left, traffic.chunk_bytes))
                left -= traffic.chunk_bytes
        if gate is not None and traffic.place == 0:
            gate.transferred(iteration)
        if kept is not None:
            # In place, as one write: to replace the file would wait for the disk.
            os.pwrite(kept, b"%020d %020d" % (iteration + 1, ranks), 0)


def kept_path(checkpoint: str | Path) -> Path:
    """The file in the job's own folder where rank 0 keeps the number of iterations that are over."""
    return Path(checkpoint, "iterations")


def kept_iterations(text: str, ranks: int) -> int:
    """The iterations that such a file says are over, in those of so many ranks; 0 where it says nothing."""
    try:
        over, of_ranks, *_ = [int(word) for word in text.split()] + [ranks]
    except ValueError:
        return 0
    return over * of_ranks // ranks


def main() -> None:
    """Replay what the environment says."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    try:
        traffic = msgspec.json.decode(os.environ[TRAFFIC_VARIABLE], type=Traffic)
        kept = kept_path(os.environ[CHECKPOINT_VARIABLE])
        rank, ranks = os.environ["RANK"], int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise HocketError(f"no job to replay ({error}); start it with 'hocket cluster run'") from None
    # Not what is kept here: ranks on several disks would not agree.
    begin = first_iteration()
    gate = gate_of_environment(begin)
    ring = None
    if traffic.leaders and traffic.place is not None:
        credentials = credentials_of(traffic.token, TRAFFIC_VARIABLE, "leave it to 'hocket cluster'")
        ring = Ring(traffic.leaders, traffic.place, credentials)
    replay(traffic, gate, ring, begin, kept if rank == "0" else None, ranks)
    if gate is not None:
        gate.close()


if __name__ == "__main__":
    try:
        main()
    except PeerLostError as error:
        print_lost(error)
        sys.exit(LOST_PEER)
    except (HocketError, TransportError, OSError) as error:
        print(f"hocket: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
