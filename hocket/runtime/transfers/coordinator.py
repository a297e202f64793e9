"""The coordinator: rank 0 picks the next transfer among buckets that are ready everywhere, and tells all.

Source: ByteScheduler's queue (Peng et al. 2019), and Horovod's coordinator, who knows what all ranks have.

Differs from them
-----------------
* Horovod asks all ranks again and again what they have; here they tell of each bucket at once.
* Nothing is chosen before it can start, as what is ready then may be more urgent: the transfer that is still
  on the way keeps the network busy while the others hear of the next one.
* What rank 0 itself waits for does not wait for credit: it goes at once, on a group of its own, and nothing
  else is started before it has arrived. Slices would have to be much smaller for as little delay. Where all
  transfers share a group (NCCL), it is the next to go.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable, Set

import torch

from hocket.runtime.transfers.buckets import Bucket
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.queue import CREDIT, Queue, TransferLane
from hocket.runtime.transfers.transfer_group import StartedCollective


class Coordinator:
    """The order of a channel's transfers, made on the way; ``group`` is for what ranks say of it alone.

    On rank 0 one thread chooses, and one for each other rank hears what is filled there; on the others one
    tells it and one hears what was chosen.
    """

    def __init__(self, queue: Queue, group: GlooGroup) -> None:
        self._queue = queue
        self._condition = queue.condition
        self._group = group
        # By their first places, buckets: on rank 0 how often each rank has filled each, elsewhere what rank 0
        # is to hear.
        self._filled_by: list[Counter[int]] = []
        self._unreported: deque[int] = deque()

    def begin(self) -> list[Callable[[], None]]:
        """Forget everything; what threads are to do, each one of them, until the queue stops."""
        self._filled_by = [Counter() for _ in range(self._group.size)]
        self._unreported.clear()
        if not self._queue.leads:
            return [self._follow_choices, self._report_filled]
        return [
            self._choose,
            *(functools.partial(self._receive_filled, rank) for rank in range(1, self._group.size)),
        ]

    def add_filled(self, bucket: Bucket) -> None:
        """``bucket`` is filled here; holding the lock, before it rings."""
        places = self._queue.places(bucket)
        if places and not self._queue.leads:
            self._unreported.append(places[0])

    def _choose(self) -> None:
        """Rank 0: choose what goes next, and have the others hear it."""
        message = torch.zeros(2, dtype=torch.int64)
        said: StartedCollective | None = None
        while True:
            with self._condition:
                if not self._queue.wait_until(lambda: self._choice() is not None):
                    return
                chosen = self._choice()
                assert chosen is not None
                lane, place = chosen
                lane.next.append(place)
                self._condition.notify()
            if said is not None:
                said.wait()
            message.copy_(torch.tensor([place, int(lane is not self._queue.usual)]))
            said = self._group.broadcast(message)

    def _follow_choices(self) -> None:
        """Other ranks: take rank 0's choices."""
        message = torch.zeros(2, dtype=torch.int64)
        while True:
            with self._condition:
                # As long as something is filled that was not chosen, rank 0 is going to choose.
                if not self._queue.wait_until(lambda: bool(self._queue.unchosen_places())):
                    return
            self._group.broadcast(message).wait()
            place, urgent = message.tolist()
            with self._condition:
                lane = self._queue.urgent if urgent else self._queue.usual
                assert lane is not None
                lane.next.append(place)
                self._condition.notify()

    def _report_filled(self) -> None:
        """Other ranks: tell rank 0 what is filled."""
        while True:
            with self._condition:
                if not self._queue.wait_until(lambda: bool(self._unreported)):
                    return
                place = self._unreported.popleft()
            self._group.send(torch.tensor([place]), 0).wait()

    def _receive_filled(self, rank: int) -> None:
        """Rank 0: hear what ``rank`` has filled, while something waits for it; gone, it fails who listens."""
        heard = torch.zeros(1, dtype=torch.int64)

        def is_awaited() -> bool:
            return any(not self._filled_on(rank, place) for place in self._queue.unchosen_places())

        while True:
            with self._condition:
                if not self._queue.wait_until(is_awaited):
                    return
            self._group.receive(heard, rank).wait()
            with self._condition:
                self._filled_by[rank][int(heard)] += 1
                self._condition.notify()

    def _choice(self) -> tuple[TransferLane, int] | None:
        """Rank 0: what it waits for, else the first listed place that is ready; None where it is to wait."""
        queue, ready = self._queue, self._ready()
        wanted = queue.awaited_places & ready
        if wanted and queue.urgent is not None:
            return queue.urgent, self._first(wanted)
        if (
            not ready
            or queue.must_wait(queue.usual)
            or queue.usual.under_way + len(queue.usual.next) >= CREDIT
        ):
            return None
        return queue.usual, self._first(wanted or ready)

    def _first(self, places: Set[int]) -> int:
        # All of a round before the next one: others may wait for it, and have nothing else to send.
        return min(places, key=lambda place: (self._queue.filled_places[place], place))

    def _ready(self) -> set[int]:
        """Rank 0: what can be chosen, as every rank has filled it."""
        others = range(1, self._group.size)
        return {
            place
            for place in self._queue.unchosen_places()
            if all(self._filled_on(rank, place) for rank in others)
        }

    def _filled_on(self, rank: int, place: int) -> bool:
        """Rank 0: whether ``rank`` has filled the bucket of a filled ``place`` as often as this one.

        Of an all-gather no rank tells: where a reduce-scatter has arrived here, it arrives everywhere,
        whoever does what meanwhile.
        """
        if self._queue.is_gather(place):
            return True
        first = self._queue.places(self._queue.order[place].bucket)[0]
        return self._filled_by[rank][first] >= self._queue.filled_places[place]
