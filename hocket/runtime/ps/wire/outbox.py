"""The sender's order: a transfer is handed over when its rank is reached (TicTac section 5.1, enforcement).

Source: TicTac: the sender keeps a counter for each worker and step, and transfer k is handed to the channel
once k transfers of the step have been. Ranks are dense for each worker-server pair.

Differs from the paper
----------------------
* Also the other way: a worker's pushes have ranks, kept strictly or, where ``strict`` is off, as a preference
  among what is ready (P3, ByteScheduler), in which case nothing waits for what is late.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable

Handover = Callable[[], None]


class Outbox:
    """Transfers that wait to be sent to one peer; one thread takes, any may put.

    A transfer is a call that sends it.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._ready: list[tuple[int, int, Handover]] = []
        self._urgent: deque[Handover] = deque()
        self._next_rank: dict[int, int] = {}
        self._condition = threading.Condition()
        self._closed = False
        self._last_transfer: Handover | None = None

    def put(self, step: int, rank: int, transfer: Handover) -> None:
        """Transfer ``rank`` of ``step`` may go when its turn comes; each rank of a step is put once."""
        with self._condition:
            heapq.heappush(self._ready, (step, rank, transfer))
            self._condition.notify()

    def put_first(self, transfer: Handover) -> None:
        """Something without a rank, that goes before all that has one."""
        with self._condition:
            self._urgent.append(transfer)
            self._condition.notify()

    def put_last(self, transfer: Handover) -> None:
        """Something without a rank, that goes behind all that has been put; then the outbox is closed.

        Nothing else is going to be put: what waited for an earlier rank goes without it.
        """
        with self._condition:
            self._last_transfer = transfer
            self._condition.notify()

    def set_strict(self, strict: bool) -> None:
        """Have ranks kept strictly from now on, or as a preference among what is ready."""
        with self._condition:
            self._strict = strict

    def close(self) -> None:
        """No more is going to be put; what has no rank still goes."""
        with self._condition:
            self._closed = True
            self._ready.clear()
            self._last_transfer = None
            self._condition.notify()

    def take(self) -> Handover | None:
        """The transfer whose turn it is, once there is one; None after the last."""
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._has_next())
            if self._urgent:
                return self._urgent.popleft()
            if not self._ready:
                last, self._last_transfer, self._closed = self._last_transfer, None, True
                return last
            step, rank, transfer = heapq.heappop(self._ready)
            self._next_rank = {k: n for k, n in self._next_rank.items() if k >= step}
            self._next_rank[step] = max(rank + 1, self._next_rank.get(step, 0))
            return transfer

    def _has_next(self) -> bool:
        if self._urgent:
            return True
        if not self._ready:
            return self._last_transfer is not None
        step, rank, _ = self._ready[0]
        return not self._strict or self._last_transfer is not None or rank == self._next_rank.get(step, 0)
