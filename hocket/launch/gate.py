"""A rank's side of the gate: it asks the cluster's manager before it computes and before a chunk goes out.

Nobody waits for a manager that is gone: one that holds a rank says so every second, and after a silence of
some seconds the rank goes ahead, says so once, and tries to reach the manager again. Imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Annotated

import msgspec

from hocket.errors import HocketError
from hocket.launch.control import UNIX, Connection, Guest, TransportError, connect
from hocket.launch.credentials import Credentials
from hocket.launch.environment import whole_number

GATE_VARIABLE = "HOCKET_GATE"
"""The gate's address, host:port."""
ATTEMPT_VARIABLE = "HOCKET_GATE_ATTEMPT"
"""The attempt that this rank belongs to."""
TOKEN_VARIABLE = "HOCKET_GATE_TOKEN"
"""The attempt's secret, without which the gate does not answer."""
FINGERPRINT_VARIABLE = "HOCKET_GATE_FINGERPRINT"
"""The SHA-256 of the gate's certificate."""
CHECKPOINT_VARIABLE = "HOCKET_CHECKPOINT"
"""A folder of the job's own, which its next attempt finds again."""
BEGIN_VARIABLE = "HOCKET_BEGIN"
"""The variable with the number of iterations that earlier attempts have run and kept."""

MOST_BYTES = 4096
"""The most bytes of a message between a rank and the gate."""
HELD_EVERY_S = 1.0
"""Seconds between messages to a rank that it still has to wait."""
GIVEN_UP = "this attempt was given up"

_SILENCE_S = 5.0
_GRACE_S = 5.0
_CONNECT_S = 2.0
_RETRY_S = 2.0


# Whatever a rank says, the engine can count with.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Part = Annotated[int, msgspec.Meta(ge=0, le=1)]


class Join(msgspec.Struct, frozen=True, tag=True):
    """A rank's first message: it is about to compute ``iteration``, or in it."""

    iteration: Count


class Compute(msgspec.Struct, frozen=True, tag=True):
    """May I compute? ``part``: 0 the forward pass of ``iteration``, 1 its backward pass."""

    number: Count
    iteration: Count
    part: Part


class Computed(msgspec.Struct, frozen=True, tag=True):
    """That part, and all before it, is over."""

    iteration: Count
    part: Part


class ChunkRequest(msgspec.Struct, frozen=True, tag="Transfer"):
    """May the next chunk go? ``bytes_left`` of the ``of_bytes`` of this iteration, the chunk included."""

    number: Count
    iteration: Count
    bytes_left: Count
    of_bytes: Count


class Transferred(msgspec.Struct, frozen=True, tag=True):
    """All that ``iteration`` had to transfer has arrived everywhere."""

    iteration: Count


class Go(msgspec.Struct, frozen=True, tag=True):
    """Yes, to the question of that number."""

    number: int


class Held(msgspec.Struct, frozen=True, tag=True):
    """Not yet; I am alive."""


class GivenUp(msgspec.Struct, frozen=True, tag=True):
    """Your attempt was given up: another one runs in your place, so end."""


FromRank = Join | Compute | Computed | ChunkRequest | Transferred
ToRank = Go | Held | GivenUp


class Gate:
    """The gate as one rank sees it; any thread may ask.

    ``attempt``: the job and the attempt at it, as the manager writes them; ``credentials``: the attempt's
    token, and the gate's certificate; ``iteration``: where the rank begins. A rank whose attempt was given up
    meanwhile is ended: another one runs in its place.
    """

    def __init__(
        self, address: str, attempt: str, rank: int, credentials: Credentials, iteration: int = 0
    ) -> None:
        self._address, self._credentials = address, credentials
        self._guest = Guest("rank", rank, attempt)
        self._iteration = iteration
        self._changed = threading.Condition()
        self._connection: Connection | None = None
        self._tried = self._closed = self._said = False
        self._heard_s = 0.0
        self._number = 0
        self._last: Computed | None = None  # which others may be held for
        self._granted: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="hocket-gate", daemon=True)
        self._thread.start()

    def compute(self, iteration: int, part: int) -> None:
        """Return when this rank may compute that part."""
        self._iteration = max(self._iteration, iteration)
        self._ask(lambda number: Compute(number, iteration, part))

    def computed(self, iteration: int, part: int) -> None:
        """That part is over."""
        self._last = Computed(iteration, part)
        self._tell(self._last)

    def transfer(self, iteration: int, bytes_left: int, of_bytes: int) -> None:
        """Return when the next chunk may go."""
        self._ask(lambda number: ChunkRequest(number, iteration, bytes_left, of_bytes))

    def transferred(self, iteration: int) -> None:
        """Tell that the transfers of the iteration have arrived."""
        self._iteration = max(self._iteration, iteration + 1)
        self._tell(Transferred(iteration))

    def close(self) -> None:
        """Leave the gate."""
        with self._changed:
            self._closed = True
            connection = self._connection
            self._changed.notify_all()
        if connection is not None:
            connection.close()

    def _ask(self, question: Callable[[int], msgspec.Struct]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._tried, _CONNECT_S + _SILENCE_S)
            connection = self._connection
            if connection is None:
                return
            self._number += 1
            number = self._number
            self._heard_s = time.monotonic()
        if not self._send(connection, question(number)):
            return
        with self._changed:
            while number not in self._granted:
                if self._connection is not connection or self._closed:
                    return
                left_s = self._heard_s + _SILENCE_S - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            else:
                self._granted.discard(number)
                return
        self._lose(connection, f"has said nothing for {_SILENCE_S:g} s")

    def _tell(self, message: msgspec.Struct) -> None:
        connection = self._connection
        if connection is not None:
            self._send(connection, message)

    def _send(self, connection: Connection, message: msgspec.Struct) -> bool:
        try:
            connection.send(message)
        except TransportError as error:
            self._lose(connection, str(error))
            return False
        return True

    def _lose(self, connection: Connection, why: str) -> None:
        with self._changed:
            if self._connection is not connection:
                return
            self._connection = None
            self._granted.clear()
            self._changed.notify_all()
            closed = self._closed
        connection.close()
        if not closed:
            self._say(why)

    def _say(self, why: str) -> None:
        if not self._said:
            self._said = True
            text = f"hocket: the cluster's gate at {self._address} cannot be asked ({why}); training goes on"
            print(text, file=sys.stderr, flush=True)

    def _run(self) -> None:
        while not self._closed:
            try:
                connection = connect(self._address, self._credentials, self._guest, _CONNECT_S)
                connection.send(Join(self._iteration))
            except (TransportError, HocketError) as error:
                if str(error) == GIVEN_UP:
                    self._end()
                    return
                self._say(str(error))
            else:
                with self._changed:
                    self._connection, self._said, self._tried = connection, False, True
                    self._heard_s = time.monotonic()
                    self._changed.notify_all()
                # Not before: what is said meanwhile would be lost. Said twice it does no harm.
                if (last := self._last) is not None:
                    with contextlib.suppress(TransportError):
                        connection.send(last)
                if self._listen(connection):
                    self._end()
                    return
            with self._changed:
                self._tried = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed, _RETRY_S)

    def _listen(self, connection: Connection) -> bool:
        """Take in answers until the connection ends; whether that is because the attempt was given up."""
        try:
            while True:
                message = connection.receive(ToRank, MOST_BYTES)
                if isinstance(message, GivenUp):
                    return True
                with self._changed:
                    self._heard_s = time.monotonic()
                    if isinstance(message, Go):
                        self._granted.add(message.number)
                    self._changed.notify_all()
        except TransportError as error:
            self._lose(connection, str(error))
            return False

    def _end(self) -> None:
        print(f"hocket: {GIVEN_UP}, another one runs; this rank ends", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_S)
        os.kill(os.getpid(), signal.SIGKILL)  # it would go on beside the other one


def first_iteration() -> int:
    """The iteration that this attempt begins with, as far as the manager knows."""
    return whole_number(BEGIN_VARIABLE, 0)


def gate_of_environment(iteration: int) -> Gate | None:
    """The gate that this process's environment names, if any, for a rank that begins with ``iteration``."""
    address = os.environ.get(GATE_VARIABLE)
    if not address:
        return None
    told = {name: os.environ.get(name, "") for name in (ATTEMPT_VARIABLE, TOKEN_VARIABLE, "RANK")}
    rank = whole_number("RANK", 0)
    if not address.startswith(UNIX):
        told[FINGERPRINT_VARIABLE] = os.environ.get(FINGERPRINT_VARIABLE, "")
    for name, value in told.items():
        if not value:
            raise HocketError(f"{GATE_VARIABLE} is set and {name} is not; leave them to 'hocket cluster'")
    credentials = Credentials(told[TOKEN_VARIABLE], told.get(FINGERPRINT_VARIABLE, ""))
    return Gate(address, told[ATTEMPT_VARIABLE], rank, credentials, iteration)
