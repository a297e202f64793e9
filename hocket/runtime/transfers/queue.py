"""The state that a channel's threads share: what is filled, what goes next on each lane, and who waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hocket.runtime.transfers.buckets import Bucket, BucketTransfer, Part
from hocket.runtime.transfers.plan_layout import Layout
from hocket.runtime.transfers.predicate_condition import PredicateCondition
from hocket.runtime.transfers.transfer_group import TransferGroup

CREDIT = 2  # transfers on the way: one is reduced while the next is sent


@dataclass(eq=False)
class TransferLane:
    """Transfers that start in one order on all ranks.

    ``next``: places whose turn it is, the first one first. ``start_lock`` is held while one is taken
    and started.
    """

    group: TransferGroup
    next: deque[int] = field(default_factory=deque)
    under_way: int = 0
    start_lock: threading.Lock = field(default_factory=threading.Lock)


class Queue:
    """Transfers of a plan, by their places in its order. All of it is read and changed holding ``condition``.

    ``lists_order``: whether the plan itself says what goes next. ``unready_buckets``: those whose gradients
    are still to be computed, the oldest first. ``filled_places``: those that are filled and were not started,
    with their round; ``awaited_places``: those that this rank's training waits for. ``urgent``: the lane of
    what rank 0 waits for; None: that is the next one on the usual lane. ``leads``: whether this is rank 0.
    ``error``: what a thread failed with; it ends all of them, as ``stopping`` does.
    """

    def __init__(self, transfers: TransferGroup, urgent: TransferGroup | None, *, leads: bool) -> None:
        self.condition = PredicateCondition()
        self.usual = TransferLane(transfers)
        self.urgent = None if urgent is None else TransferLane(urgent)
        self.leads = leads
        self.order: tuple[BucketTransfer, ...] = ()
        self.lists_order = True
        self.filled_places: dict[int, int] = {}
        self.awaited_places: frozenset[int] = frozenset()
        self.unready_buckets: deque[Bucket] = deque()
        self.stopping = False
        self.error: BaseException | None = None
        self._places: dict[int, list[int]] = {}
        self._gathers: dict[tuple[Bucket, int], int] = {}

    def reset(self, layout: Layout) -> None:
        """Begin with a plan of which nothing is filled."""
        self.stopping = False
        self.order, self.lists_order = layout.transfers, layout.plan.issue != "ready"
        self._places, self._gathers = {}, {}
        for place, transfer in enumerate(self.order):
            self._places.setdefault(id(transfer.bucket), []).append(place)
            if transfer.part is Part.GATHER:
                self._gathers[transfer.bucket, transfer.piece] = place
        self.usual.next = deque(range(len(self.order)) if self.lists_order else ())
        if self.urgent is not None:
            self.urgent.next = deque()

    @property
    def lanes(self) -> list[TransferLane]:
        """Those that this plan's transfers take."""
        return [self.usual] if self.lists_order or self.urgent is None else [self.usual, self.urgent]

    def places(self, bucket: Bucket) -> list[int]:
        """The places of the transfers of ``bucket``; the first place stands for all of it among ranks."""
        return self._places.get(id(bucket), [])

    def is_gather(self, place: int) -> bool:
        """Tell whether an all-gather is there, which goes once the reduce-scatter before it has arrived."""
        return self.order[place].part is Part.GATHER

    def places_of_sums(self) -> list[int]:
        """The places of all transfers that bring sums."""
        return [place for place in range(len(self.order)) if not self.is_gather(place)]

    def fill(self, bucket: Bucket) -> None:
        """The gradients of ``bucket`` are there: its sums can be transferred."""
        for place in self.places(bucket):
            if not self.is_gather(place):
                self.filled_places[place] = bucket.rounds

    def fill_behind(self, transfer: BucketTransfer) -> None:
        """``transfer`` has arrived: its all-gather can go, if it has one."""
        if transfer.part is Part.SCATTER:
            bucket = transfer.bucket
            self.filled_places[self._gathers[bucket, transfer.piece]] = bucket.rounds

    def run(self, work: Callable[[], None]) -> None:
        """Do ``work`` as a thread's only purpose; what it fails with fails all."""
        try:
            work()
        except Exception as error:
            with self.condition:
                self.error = self.error or error
                self.condition.notify()

    def wait_until(self, predicate: Callable[[], bool]) -> bool:
        """Wait for ``predicate``; False when there is nothing to wait for any more."""
        self.condition.wait_for(lambda: self.stopping or self.error is not None or predicate())
        return not self.stopping and self.error is None

    def unchosen_places(self) -> set[int]:
        """Places that are filled and whose turn nobody has said."""
        return self.filled_places.keys() - {place for lane in self.lanes for place in lane.next}

    def must_wait(self, lane: TransferLane) -> bool:
        """True if the usual lane has to wait, as rank 0 has urgent transfers queued or under way."""
        if lane is not self.usual or not self.leads or (lane.next and lane.next[0] in self.awaited_places):
            return False
        return self.urgent is not None and bool(self.urgent.next or self.urgent.under_way)

    def under_way(self) -> int:
        """Transfers that have started and not ended."""
        return sum(lane.under_way for lane in self.lanes)

    def may_go(self) -> bool:
        """True if something is filled, or going to be, whose turn has come or can come."""
        if self.unready_buckets:
            return True
        turns = [lane.next[0] for lane in self.lanes if lane.next]
        return any(place in self.filled_places for place in turns) if turns else bool(self.filled_places)
