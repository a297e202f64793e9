"""The network's side: transfers in the plan's order, a few on the way at once, beside the training thread.

Source: Caramel section 4 (transfers over the whole iteration), with ByteScheduler's credit (Peng et al.
2019): a transfer that is urgent waits for the few before it at most, and the network never waits for a
thread to wake.

Differs from the papers
-----------------------
* The order is fixed by the plan and the same on every rank and in every step: AllReduces that ranks issue in
  different orders sum up the wrong tensors or wait for each other for ever. What is urgent the moment it is
  there has a lane, and so a group, of its own: where it is later than planned, the others go on.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch.distributed as dist

from hocket.runtime.buckets import Bucket, State, Transfer
from hocket.runtime.group import Group

CREDIT = 2  # transfers on the way: one is reduced while the next is sent

Sent = Callable[[str, float, float], None]


class TransferError(Exception):
    """A transfer that failed or did not end; whose fault it is, nobody knows yet."""


class Channel:
    """Reduces what is filled, on ``groups`` that nobody else uses, one for each lane.

    Of each lane ``CREDIT`` threads take the next transfer of its order, start it once its bucket is filled,
    and wait for its end. ``sent`` is called, from those threads, with a transfer's name, start and end.
    """

    def __init__(self, groups: Sequence[Group], timeout_s: float, sent: Sent) -> None:
        self._groups = groups
        self._timeout_s = timeout_s
        self._sent = sent
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._lanes: list[_Lane] = []
        self._pieces: Counter[int] = Counter()
        self._under_way = 0
        self._stopping = False
        self.error: BaseException | None = None

    def start(self, order: Sequence[Transfer]) -> None:
        """Send along ``order``, over and over, until :meth:`stop`."""
        assert not self._threads
        self._stopping = False
        self._pieces = Counter(id(transfer.bucket) for transfer in order)
        lanes = [
            _Lane(group, [transfer for transfer in order if transfer.lane == k])
            for k, group in enumerate(self._groups)
        ]
        self._lanes = [lane for lane in lanes if lane.order]
        self._threads = [
            threading.Thread(target=self._run, args=[lane], name=f"hocket-transfers-{k}", daemon=True)
            for lane in self._lanes
            for k in range(CREDIT)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads once what can go has arrived, or failed: other ranks wait for it, too."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.error is not None or not (self._under_way or any(map(_due, self._lanes))),
                self._timeout_s,
            )
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=self._timeout_s)
        self._threads, self._lanes = [], []

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

    def _run(self, lane: _Lane) -> None:
        try:
            while (taken := self._take(lane)) is not None:
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

    def _take(self, lane: _Lane) -> tuple[Transfer, dist.Work, float] | None:
        """Start the next transfer of the lane once it is filled; None when there will be none."""
        # The lock makes ranks agree: transfers start in the order, whichever thread starts them.
        with lane.issue:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self.error is not None or _due(lane))
                if self._stopping or self.error is not None:
                    return None
                transfer = lane.order[lane.next % len(lane.order)]
                lane.next += 1
                self._under_way += 1
            started = time.perf_counter()
            return transfer, lane.group.reduce(transfer.tensor), started


@dataclass
class _Lane:
    """Transfers that keep their order; ``next`` counts those that were started."""

    group: Group
    order: Sequence[Transfer]
    next: int = 0
    issue: threading.Lock = field(default_factory=threading.Lock)


def _due(lane: _Lane) -> bool:
    """Whether the next transfer of the lane is filled."""
    turn, place = divmod(lane.next, len(lane.order))
    return lane.order[place].bucket.rounds > turn
