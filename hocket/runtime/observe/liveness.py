"""A watch over who is alive and who is to blame: each rank leaves a sign in the job's store every second.

A transfer that fails says little (a connection was closed), and a wait that ends says nothing. The signs say
which process has gone, which has finished its training, and which is behind. A process that waits for seconds
is told of one that trains no more (:mod:`hocket.runtime.observe.lost_ranks`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from torch._C._distributed_c10d import PrefixStore
from torch.distributed import DistNetworkError

from hocket.launch.lost_peers import lost_connection
from hocket.logs import logger
from hocket.runtime.observe.lost_ranks import (
    FIX,
    IdleTimes,
    ScriptCollective,
    Sign,
    collective_of,
    end_of_training,
    lost_for_good,
    ranks_text,
)
from hocket.runtime.observe.store_heartbeats import PATIENCE_S, StoreHeartbeats, see_off

_EVERY_S = 1.0
_SILENT_S = 3.0
_WARN_S = 10.0


class Blame(NamedTuple):
    """The reason of a failure in one line; ``lost``: that is a lost connection, or the rank behind it."""

    line: str
    lost: bool


class LivenessWatch:
    """Leaves this rank's sign and reads the others'.

    To be kept up to date: ``steps``, how far this rank is, ``stepping``, whether it is in another one,
    ``passes``, how many forward passes there were, and ``thread``, which one trains. ``alarm`` is called,
    from the watch's own thread, with a line when this rank waits for what never comes; ``loss_reason`` is
    it.

    Ranks also ask each other for what they recorded: ``answer`` makes this rank's.
    """

    def __init__(
        self, store: Any, prefix: str, rank: int, ranks: Sequence[int], answer: Callable[[], bytes]
    ) -> None:
        self.steps = self.passes = 0
        self.stepping = False
        self.thread = threading.get_ident()
        self.alarm: Callable[[str], None] = lambda line: None
        self.loss_reason = ""
        self._inside: ScriptCollective | None = None
        # Half steps that others have to come to, and since when this rank waits for that.
        self._waits: tuple[int, float] | None = None
        self._idle = IdleTimes()
        self._patience_s = _WARN_S
        # The rank that made the store may serve it to all.
        self._serves = ranks[rank] == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True)
        self._store: Any = PrefixStore(prefix, store.clone())
        self._answer = answer
        self._last_answer = 0
        self._rank, self._ranks = rank, ranks
        # Waiting for others holds a connection: signs have one of their own.
        self._waiting_store: Any = PrefixStore(prefix, store.clone())
        self._signs = StoreHeartbeats(self._waiting_store, len(ranks), store)
        self._count = 0
        self._finished = self._finishing = False
        self._stop_event = threading.Event()
        self._lock = threading.Lock()
        self._sign()
        self._thread = threading.Thread(target=self._run, name="hocket-watch", daemon=True)
        self._thread.start()

    def stop(self, finished: bool) -> None:
        """Leave a last sign; ``finished``: that this rank's training is over and that all is well."""
        self._finishing = finished
        self._stop_event.set()
        # A store that no longer answers keeps the thread, timeout or not; it is not to keep us as well. One
        # that answers late is waited for: a thread that is in torch when the interpreter ends aborts it.
        self._thread.join(timeout=PATIENCE_S)
        if self._finished and self._serves:
            see_off(self._signs)

    @contextlib.contextmanager
    def waiting(self, *, for_next: bool) -> Iterator[None]:
        """Within, this rank waits for all to have finished its last step, or begun the next one."""
        outer = self._waits
        self._waits = 2 * self.steps + for_next, time.monotonic()
        try:
            yield
        finally:
            self._waits = outer

    def blame(self, failure: str) -> Blame:
        """Find which rank is the reason of ``failure``; takes some seconds."""
        if self.loss_reason:
            return Blame(self.loss_reason, lost=False)
        before = self._signs.read()
        if before is not None:
            time.sleep(_SILENT_S)
        after = None if before is None else self._signs.read()
        if before is None or after is None:
            return Blame(f"the rank that holds the job's store is gone ({failure})", lost=True)
        others = [r for r in range(len(self._ranks)) if r != self._rank]
        finished = [r for r in others if after[r].finished]
        silent = [r for r in others if not after[r].finished and after[r].count == before[r].count]
        mine, me = self.steps, self._ranks[self._rank]
        if silent:
            return Blame(
                f"{self._are(silent)} gone: without a sign for {_SILENT_S:g} s since step"
                f" {after[silent[0]].steps}, while rank {me} is in step {mine} ({failure})",
                lost=True,
            )
        if finished:
            return Blame(
                f"{self._are(finished)} done after {after[finished[0]].steps} steps, while rank {me} is"
                f" in step {mine}; {FIX}",
                lost=False,
            )
        lost = lost_connection(failure) is not None
        behind = [r for r in others if after[r].steps < mine]
        if behind:
            return Blame(
                f"{self._are(behind)} alive but in step {after[behind[0]].steps}, while rank {me} is in"
                f" step {mine} ({failure})",
                lost=lost,
            )
        return Blame(f"all ranks are alive ({failure})", lost=lost)

    def ask(self) -> list[bytes]:
        """The answer of every rank that gives one within some seconds, in their order."""
        with self._lock:
            number = self._store.add("asked", 1)
            self._reply(number)
        return self.replies(number)

    def replies(self, number: int) -> list[bytes]:
        """The answers to a question, or (0) those that ranks leave at their end."""
        answers = []
        for rank in range(len(self._ranks)):
            key = f"answer/{number}/{rank}"
            with contextlib.suppress(Exception):
                self._waiting_store.wait([key], timedelta(seconds=PATIENCE_S))
                answers.append(self._waiting_store.get(key))
        return answers

    def reply_at_end(self) -> None:
        """Leave an answer for a rank that asks when this one has ended."""
        if self._thread.is_alive() and self._lock.acquire(timeout=PATIENCE_S):
            try:
                with contextlib.suppress(Exception):
                    self._reply(0)
            finally:
                self._lock.release()

    def _reply(self, number: int) -> None:
        # Tried once: who asked waits for some seconds only.
        self._last_answer = max(self._last_answer, number)
        self._store.set(f"answer/{number}/{self._rank}", self._answer())

    def _run(self) -> None:
        # The store may go before we do; then there is nobody left to read a sign. Its clients never connect
        # again, and torch prints a trace at each of their calls.
        with contextlib.suppress(DistNetworkError):
            while not self._stop_event.wait(_EVERY_S):
                self._take_turn()
                self._look_out()
            if self._finishing:
                self._take_turn()
                self._finished = True
                self._sign()  # the very last call: who serves the store goes when it has seen this

    def _take_turn(self) -> None:
        """Sign and answer; what else fails is worth no more than this turn: silence would look like death."""
        try:
            self._sign()
            with self._lock:
                asked = self._store.add("asked", 0)
                if asked > self._last_answer:
                    self._reply(asked)
        except Exception as error:
            if isinstance(error, DistNetworkError):
                raise

    def _sign(self) -> None:
        with self._lock:
            self._count += 1
            now = collective_of(self.thread)
            sign = Sign(
                count=self._count,
                steps=self.steps,
                stepping=self.stepping,
                passes=self.passes,
                finished=self._finished,
                over=end_of_training(),
                inside=now if now == self._inside else None,
            )
            self._inside = now
            self._store.set(f"sign/{self._rank}", msgspec.json.encode(sign).decode())

    def _look_out(self) -> None:
        """Tell this rank, if it has waited for seconds, what others are doing."""
        waits = self._waits
        if waits is None or self.loss_reason:
            self._idle.forget()
            return
        (needed, since_s), now_s = waits, time.monotonic()
        if now_s - since_s < _SILENT_S or (signs := self._signs.read()) is None:
            return
        others = {rank: sign for rank, sign in enumerate(signs) if rank != self._rank}
        gone = lost_for_good(others, needed)
        if gone is not None and self._waits is waits:
            (rank, why), me = gone, self._ranks[self._rank]
            self.loss_reason = (
                f"rank {self._ranks[rank]} {why} after {others[rank].steps} steps, while rank {me} is in step"
                f" {self.steps} and waits for it; {FIX}"
            )
            self.alarm(self.loss_reason)
            return
        idle = self._idle.longer_than(self._patience_s, others, now_s)
        behind = [rank for rank in idle if others[rank].progress < needed]
        if behind and self._rank == next(r for r in range(len(signs)) if r not in behind):
            self._warn(behind, others, now_s - since_s)

    def _warn(self, idle: Sequence[int], signs: Mapping[int, Sign], waited_s: float) -> None:
        """Log who is waited for; ranks may evaluate or save for as long as they like, so it is no more."""
        self._patience_s = 2 * waited_s
        names = [self._ranks[rank] for rank in idle]
        logger.warning(
            "rank %d has waited %.0f s in step %d for %s; fine if that evaluates or saves, else %s",
            self._ranks[self._rank],
            waited_s,
            self.steps,
            ranks_text(
                names, *[f"that {verb} trained {signs[idle[0]].steps} steps" for verb in ("has", "have")]
            ),
            FIX,
        )

    def _are(self, ranks: Sequence[int]) -> str:
        """Ranks of the group by their numbers in the job."""
        return ranks_text([self._ranks[rank] for rank in ranks], "is", "are")
