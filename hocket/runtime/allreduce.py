"""The network's side: transfers in one order on all ranks, a few on the way, beside the training thread.

Source: Caramel section 4 (transfers over the whole iteration), with ByteScheduler's queue and credit (Peng et
al. 2019): of the transfers that are ready the most urgent goes first, it waits for the few before it at most,
and the network never waits for a thread to wake.

Differs from the papers
-----------------------
* AllReduces that ranks issue in different orders sum up the wrong tensors or wait for each other for ever. So
  either the plan lists the order, or rank 0 chooses and tells the others: one small message, where Horovod
  and ByteScheduler gather from all ranks what is ready. The others are about as far as rank 0, and a
  transfer that is chosen early waits for the last of them.
* One transfer is chosen ahead, so that the message, which queues behind data, holds nobody up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import torch
import torch.distributed as dist

from hocket.runtime.buckets import Bucket, Layout, State, Transfer
from hocket.runtime.group import Group

CREDIT = 2  # transfers on the way: one is reduced while the next is sent
_AHEAD = 1  # chosen and not on the way yet
_PATIENCE_S = 2.0

Sent = Callable[[str, float, float], None]


class TransferError(Exception):
    """A transfer that failed or did not end; whose fault it is, nobody knows yet."""


class Channel:
    """Reduces what is filled on ``group``; ``choices`` carries rank 0's. Nobody else uses either of them.

    ``CREDIT`` threads take the next transfer, start it once its bucket is filled, and wait for its end; where
    the plan does not list the order, one more chooses, or hears what was chosen. ``sent`` is called, from
    those threads, with a transfer's name, start and end.
    """

    def __init__(self, group: Group, choices: Group, timeout_s: float, sent: Sent) -> None:
        self._group, self._choices = group, choices
        self._timeout_s = timeout_s
        self._sent = sent
        self._changed = threading.Condition()
        # Held while one is taken and started: transfers start in one order, whichever thread starts them.
        self._issue = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._order: tuple[Transfer, ...] = ()
        self._listed = True
        self._places: dict[int, list[int]] = {}
        # Places in the order: whose turn it is next, and, with their round, those that are filled and wait.
        self._next: deque[int] = deque()
        self._filled: dict[int, int] = {}
        self._under_way = 0
        self._stopping = False
        self.error: BaseException | None = None

    def start(self, layout: Layout) -> None:
        """Send along ``layout``, over and over, until :meth:`stop`."""
        assert not self._threads
        self._stopping = False
        self._order, self._listed = layout.transfers, layout.plan.issue != "ready"
        self._places = {}
        for place, transfer in enumerate(self._order):
            self._places.setdefault(id(transfer.bucket), []).append(place)
        self._next = deque(range(len(self._order)) if self._listed else ())
        work = [self._transfer] * CREDIT + ([] if self._listed else [self._choose])
        self._threads = [
            threading.Thread(
                target=self._run, args=[each], name=f"hocket-{each.__name__[1:]}-{k}", daemon=True
            )
            for k, each in enumerate(work)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads once what can go has arrived, or failed: other ranks wait for it, too."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.error is not None or not (self._under_way or self._may_go()), self._timeout_s
            )
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads[:CREDIT]:
            thread.join(timeout=self._timeout_s)
        for thread in self._threads[CREDIT:]:
            # Where the backward pass ended halfway it may wait for a choice that never comes.
            thread.join(timeout=_PATIENCE_S)
        self._threads = []

    def send(self, bucket: Bucket) -> None:
        """``bucket`` is filled: reduce it when its turn comes."""
        with self._changed:
            bucket.state = State.SENT
            places = self._places.get(id(bucket), ())
            bucket.missing = len(places)
            bucket.rounds += 1
            for place in places:
                self._filled[place] = bucket.rounds
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

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            with self._changed:
                self.error = self.error or error
                self._changed.notify_all()

    def _transfer(self) -> None:
        while (taken := self._take()) is not None:
            transfer, work, started = taken
            work.wait()
            self._sent(transfer.name, started, time.perf_counter())
            with self._changed:
                transfer.bucket.missing -= 1
                self._under_way -= 1
                self._changed.notify_all()

    def _take(self) -> tuple[Transfer, dist.Work, float] | None:
        """Start the next transfer; None when there will be none."""
        with self._issue:
            with self._changed:
                if not self._until(lambda: bool(self._next) and self._next[0] in self._filled):
                    return None
                place = self._next.popleft()
                if self._listed:
                    self._next.append(place)
                del self._filled[place]
                self._under_way += 1
                self._changed.notify_all()
            started = time.perf_counter()
            return self._order[place], self._group.reduce(self._order[place].tensor), started

    def _choose(self) -> None:
        """On rank 0 choose what goes next, on others hear it, whenever something is filled that may be it."""
        leads = self._choices.rank == 0
        said: tuple[torch.Tensor, dist.Work] | None = None
        while True:
            with self._changed:
                if not self._until(lambda: bool(self._open()) and not (leads and len(self._next) >= _AHEAD)):
                    return
                # All of a round before the next one: others may wait for it, and have nothing else to send.
                choice = torch.tensor(min(self._open(), key=lambda place: (self._filled[place], place)))
                if leads:
                    self._next.append(int(choice))
                    self._changed.notify_all()
            if leads:
                if said is not None:
                    said[1].wait()
                said = choice, self._choices.broadcast(choice)
                continue
            # As long as something is filled that was not chosen, rank 0 is going to choose.
            self._choices.broadcast(choice).wait()
            with self._changed:
                self._next.append(int(choice))
                self._changed.notify_all()

    def _open(self) -> set[int]:
        """Places that are filled and were not chosen."""
        return self._filled.keys() - self._next

    def _until(self, due: Callable[[], bool]) -> bool:
        """Wait, in the lock, for ``due``; False when there is nothing to wait for any more."""
        self._changed.wait_for(lambda: self._stopping or self.error is not None or due())
        return not self._stopping and self.error is None

    def _may_go(self) -> bool:
        """Whether something is filled whose turn has come or can come."""
        return self._next[0] in self._filled if self._next else bool(self._filled)
