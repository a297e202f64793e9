"""A worker's processor in a replay: operations are slept through, each to an absolute deadline.

An operation begins where the one before it was due to end, or when the last of what it needs came, and not
when a thread woke: what one sleep is late does not add up with the next. Nobody sleeps where nobody could
notice, so hundreds of short operations cost no more than the few that something waits for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition
from typing import Protocol

from hocket.errors import HocketError, reason
from hocket.graph import Csr, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.step import Seconds
from hocket.launch.lost_peers import PeerLostError, lost_connection

_GLANCE_S = 1.0


class Clock(Protocol):
    """The interface of a clock, in seconds."""

    def now_s(self) -> float:
        """The time."""

    def sleep_until(self, moment_s: float) -> None:
        """Return at ``moment_s``, or at once where it is over."""


class WallClock:
    """This machine's clock, which all of its processes share."""

    def now_s(self) -> float:
        """The time."""
        return time.perf_counter()

    def sleep_until(self, moment_s: float) -> None:
        """Return at ``moment_s``, or at once where it is over."""
        left_s = moment_s - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)


class Arrivals(Protocol):
    """Messages that came, each once, with the moment of its arrival."""

    def take(self, *, wait: bool) -> list[tuple[int, float]]:
        """The messages that came since the last call, with their moments; with ``wait``, at least one."""


class Mailbox:
    """Arrivals that other threads report, on ``clock``.

    ``failure``, to be set by who has such threads: the exception that one of them ended with, after which
    nothing comes; a thread that waits asks it every second.
    """

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock, self._timeout_s = clock, timeout_s
        self.failure: Callable[[], BaseException | None] = lambda: None
        self._arrivals: deque[tuple[int, float]] = deque()
        self._condition = Condition()

    def deliver(self, message: int) -> None:
        """``message`` is here."""
        moment_s = self._clock.now_s()
        with self._condition:
            self._arrivals.append((message, moment_s))
            self._condition.notify_all()

    @property
    def empty(self) -> bool:
        """True if nothing came since the last call of :meth:`take`."""
        return not self._arrivals

    def take(self, *, wait: bool) -> list[tuple[int, float]]:
        """The messages that came since the last call, with their moments; with ``wait``, at least one.

        Raises
        ------
        HocketError
            When nothing comes in time, or any more.
        """
        deadline_s = time.monotonic() + self._timeout_s
        with self._condition:
            while wait and not self._arrivals:
                if (failure := self.failure()) is not None:
                    raise _stopped(failure)
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise HocketError(f"nothing arrived within {self._timeout_s:g} s; a peer may be gone")
                self._condition.wait(min(left_s, _GLANCE_S))
            came = list(self._arrivals)
            self._arrivals.clear()
            return came


def _stopped(failure: BaseException) -> HocketError:
    why = reason(failure) or repr(failure)
    if (lost := lost_connection(why)) is not None:
        return PeerLostError(lost)
    return HocketError(f"nothing arrives any more: {why}")


class Processor:
    """Runs a graph's operations: of those that are ready the least ``rank`` first, or strictly by rank.

    rank (n,): of each operation, 0 to n - 1. needs: n rows, which messages each operation waits for beside
    its inputs. num_messages: how many come in a step, needed or not.
    """

    def __init__(
        self,
        graph: StepGraph,
        clock: Clock,
        *,
        rank: Indices,
        strict: bool,
        needs: Sequence[Sequence[int]],
        num_messages: int,
    ) -> None:
        self._clock, self._strict, self._num_messages = clock, strict, num_messages
        n = graph.num_operations
        self._rank: list[int] = rank.tolist()
        self._in_order = sorted(range(n), key=self._rank.__getitem__)
        self._users = _rows(graph.inputs.transpose(n), n)
        self._notable = [len(graph.produces.row(i)) > 0 for i in range(n)]
        self._needed_by: list[list[int]] = [[] for _ in range(num_messages)]
        for op, messages in enumerate(needs):
            for message in messages:
                self._needed_by[message].append(op)
        self._waits = [len(graph.inputs.row(i)) + len(needs[i]) for i in range(n)]

    def run(
        self, durations_s: Seconds, begin_s: float, arrivals: Arrivals, on_finish: Callable[[int], None]
    ) -> float:
        """Run a step that begins at ``begin_s``; returns when it is over and every message has come.

        durations_s (n,): of each operation. ``on_finish`` is called with each operation that produces
        gradients, when it ends.

        Returns
        -------
        When the last operation was due to end.
        """
        seconds: list[float] = durations_s.tolist()
        step = _StepProgress(self._waits, begin_s)
        free_s, turn, came = begin_s, 0, 0

        def absorb(*, wait: bool) -> int:
            messages = arrivals.take(wait=wait)
            for message, moment_s in messages:
                step.reach(self._needed_by[message], moment_s)
            return len(messages)

        for _ in range(len(seconds)):
            while step.done[self._in_order[turn]]:
                turn += 1
            op = self._in_order[turn]
            if op not in step.ready:
                # The next operation depends on what will have come when the processor is free.
                self._clock.sleep_until(free_s)
                came += absorb(wait=False)
                while not (op in step.ready if self._strict else step.ready):
                    came += absorb(wait=True)
                if not self._strict:
                    op = self._first_of(step.ready, free_s)
            free_s = max(free_s, step.ready.pop(op)) + seconds[op]
            step.done[op] = True
            if self._notable[op]:
                self._clock.sleep_until(free_s)
                on_finish(op)
            step.reach(self._users[op], free_s)
        while came < self._num_messages:
            came += absorb(wait=True)
        self._clock.sleep_until(free_s)
        return free_s

    def _first_of(self, ready: dict[int, float], free_s: float) -> int:
        """The operation that a processor free at ``free_s`` took: of least rank then, or the first ready."""
        in_time = [op for op, since_s in ready.items() if since_s <= free_s]
        if in_time:
            return min(in_time, key=self._rank.__getitem__)
        return min(ready, key=lambda op: (ready[op], self._rank[op]))


class _StepProgress:
    """The progress of one step: what is done, and what is ready since when."""

    def __init__(self, waits: Sequence[int], begin_s: float) -> None:
        self._waits = list(waits)
        self._since_s = [begin_s] * len(waits)
        self.done = [False] * len(waits)
        self.ready = {op: begin_s for op, count in enumerate(waits) if count == 0}

    def reach(self, ops: Sequence[int], moment_s: float) -> None:
        """Each of ``ops`` waits for one thing less since ``moment_s``."""
        for op in ops:
            self._waits[op] -= 1
            self._since_s[op] = max(self._since_s[op], moment_s)
            if self._waits[op] == 0:
                self.ready[op] = self._since_s[op]


def _rows(csr: Csr, count: int) -> list[list[int]]:
    return [csr.row(i).tolist() for i in range(count)]
