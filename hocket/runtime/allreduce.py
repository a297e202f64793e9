"""The network's side: transfers in the plan's order, a few on the way at once, beside the training thread.

Source: Caramel section 4 (transfers over the whole iteration), with ByteScheduler's queue and credit (Peng et
al. 2019): of the transfers that are ready the most urgent goes first, it waits for the few before it at most,
and the network never waits for a thread to wake.

Differs from the papers
-----------------------
* AllReduces that ranks issue in different orders sum up the wrong tensors or wait for each other for ever. So
  either the plan lists the order, or rank 0 chooses each transfer when one may go and tells the others: one
  small message, where Horovod and ByteScheduler gather from all ranks what is ready. The others are about as
  far as rank 0, and a transfer that is chosen early waits for the last of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from hocket.runtime.buckets import Bucket, Layout, State, Transfer
from hocket.runtime.group import Group

CREDIT = 2  # transfers on the way: one is reduced while the next is sent

Sent = Callable[[str, float, float], None]


class TransferError(Exception):
    """A transfer that failed or did not end; whose fault it is, nobody knows yet."""


class Channel:
    """Reduces what is filled on ``group``; ``choices`` carries rank 0's. Nobody else uses either of them.

    ``CREDIT`` threads take the next transfer, start it once its bucket is filled, and wait for its end.
    ``sent`` is called, from those threads, with a transfer's name, start and end.
    """

    def __init__(self, group: Group, choices: Group, timeout_s: float, sent: Sent) -> None:
        self._group, self._choices = group, choices
        self._timeout_s = timeout_s
        self._sent = sent
        self._changed = threading.Condition()
        # Held while one is chosen and started: transfers start in one order, whichever thread starts them.
        self._issue = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._order: tuple[Transfer, ...] = ()
        self._listed = True
        self._places: dict[int, list[int]] = {}
        self._started = 0
        self._message: tuple[torch.Tensor, dist.Work] | None = None  # rank 0's last choice on its way
        self._filled: dict[int, int] = {}  # places in the order that wait for their turn, with their round
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
        self._started = 0
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
                lambda: self.error is not None or not (self._under_way or self._may_go()), self._timeout_s
            )
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=self._timeout_s)
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
        """Start the next transfer; None when there will be none."""
        with self._issue:
            place = self._next()
            if place is None:
                return None
            started = time.perf_counter()
            return self._order[place], self._group.reduce(self._order[place].tensor), started

    def _next(self) -> int | None:
        """The place of the next transfer, which is filled and counts as under way from now on."""
        if not self._until(lambda: bool(self._filled)):
            return None
        if self._listed:
            place = self._started % len(self._order)
        else:
            place = self._chosen() if self._choices.rank == 0 else self._told()
        if not self._until(lambda: place in self._filled):
            return None
        with self._changed:
            del self._filled[place]
            self._started += 1
            self._under_way += 1
            more = bool(self._filled)
        if more and not self._listed and self._choices.rank > 0:
            self._listen()
        return place

    def _chosen(self) -> int:
        """Rank 0: choose among what is filled, and have the others know."""
        with self._changed:
            # All of a round before the next one: others may wait for it, and have nothing else to send.
            place = min(self._filled, key=lambda k: (self._filled[k], k))
        if self._message is not None:
            self._message[1].wait()
        choice = torch.tensor(place)
        self._message = choice, self._choices.broadcast(choice)
        return place

    def _told(self) -> int:
        """Other ranks: what rank 0 has chosen."""
        if self._message is None:
            self._listen()
        assert self._message is not None
        choice, coming = self._message
        coming.wait()
        self._message = None
        return int(choice)

    def _listen(self) -> None:
        """Have the next choice come without another trip; only while it is certain that there will be one."""
        choice = torch.tensor(0)
        self._message = choice, self._choices.broadcast(choice)

    def _until(self, due: Callable[[], bool]) -> bool:
        """Wait for ``due``; False when there is nothing to wait for any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self.error is not None or due())
            return not self._stopping and self.error is None

    def _may_go(self) -> bool:
        """Whether something is filled whose turn has come or can come."""
        if not self._listed:
            return bool(self._filled)
        return bool(self._order) and self._started % len(self._order) in self._filled
