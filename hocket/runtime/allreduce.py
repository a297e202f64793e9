"""The network's side: transfers in the plan's order, a few on the way at once, beside the training thread.

Source: Caramel section 4 (transfers over the whole iteration), with ByteScheduler's credit (Peng et al.
2019): a transfer that is urgent waits for the few before it at most, and the network never waits for a
thread to wake.

Differs from the papers
-----------------------
* The order is fixed by the plan and the same on every rank and in every step: AllReduces that ranks issue in
  different orders sum up the wrong tensors or wait for each other for ever.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import torch.distributed as dist

from hocket.runtime.buckets import Bucket, State, Transfer
from hocket.runtime.group import Group

CREDIT = 2  # transfers on the way: one is reduced while the next is sent

Sent = Callable[[str, float, float], None]


class TransferError(Exception):
    """A transfer that failed or did not end; whose fault it is, nobody knows yet."""


class Channel:
    """Reduces what is filled, on a group that nobody else uses.

    Each of ``CREDIT`` threads takes the next transfer of the order, starts it once its bucket is filled, and
    waits for its end. ``sent`` is called, from those threads, with a transfer's name, start and end.
    """

    def __init__(self, group: Group, timeout_s: float, sent: Sent) -> None:
        self._group = group
        self._timeout_s = timeout_s
        self._sent = sent
        self._changed = threading.Condition()
        self._issue = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._order: Sequence[Transfer] = ()
        self._pieces: Counter[int] = Counter()
        self._next = self._under_way = 0
        self._stopping = False
        self.error: BaseException | None = None

    def start(self, order: Sequence[Transfer]) -> None:
        """Send along ``order``, over and over, until :meth:`stop`."""
        assert not self._threads
        self._order, self._next, self._stopping = order, 0, False
        self._pieces = Counter(id(transfer.bucket) for transfer in order)
        self._threads = [
            threading.Thread(target=self._run, name=f"hocket-transfers-{k}", daemon=True)
            for k in range(CREDIT)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads once what can go has arrived, or failed: other ranks wait for it, too."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.error is not None or not (self._under_way or self._due()), self._timeout_s
            )
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=self._timeout_s)
        self._threads, self._order = [], ()

    def send(self, bucket: Bucket) -> None:
        """``bucket`` is filled: reduce it when its turn comes."""
        with self._changed:
            bucket.state = State.SENT
            bucket.missing = self._pieces[id(bucket)]
            bucket.rounds += 1
            self._changed.notify_all()

    def wait(self, bucket: Bucket) -> None:
        """Until ``bucket`` has arrived.

        Raises
        ------
        TransferError
            When a transfer failed or did not end in time.
        """
        with self._changed:
            done = self._changed.wait_for(
                lambda: self.error is not None or not bucket.missing, timeout=self._timeout_s
            )
        if self.error is not None:
            raise TransferError(str(self.error) or repr(self.error)) from self.error
        if not done:
            raise TransferError(f"'{bucket.names[0]}' did not arrive within {self._timeout_s:g} s")

    def arrived(self, bucket: Bucket) -> bool:
        """Whether a bucket that was sent could be used without waiting."""
        return bucket.missing == 0

    def _run(self) -> None:
        try:
            while (taken := self._take()) is not None:
                transfer, work, started = taken
                work.wait()
                self._sent(transfer.name, started, time.perf_counter())
                with self._changed:
                    transfer.bucket.missing -= 1
                    self._under_way -= 1
                    self._changed.notify_all()
        except Exception as error:
            with self._changed:
                self.error = self.error or error
                self._changed.notify_all()

    def _take(self) -> tuple[Transfer, dist.Work, float] | None:
        """Start the next transfer of the order once it is filled; None when there will be none."""
        # The lock makes ranks agree: transfers start in the order, whichever thread starts them.
        with self._issue:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self.error is not None or self._due())
                if self._stopping or self.error is not None:
                    return None
                transfer = self._order[self._next % len(self._order)]
                self._next += 1
                self._under_way += 1
            started = time.perf_counter()
            return transfer, self._group.reduce(transfer.tensor), started

    def _due(self) -> bool:
        """Whether the next transfer of the order is filled."""
        if not self._order:
            return False
        turn, place = divmod(self._next, len(self._order))
        return self._order[place].bucket.rounds > turn
