"""Norms of gradients on their way: what they are made of, of each parameter over all ranks, once a round.

Each rank squares its share of what has been summed up as soon as that is there, and a small AllReduce of a
number for each parameter gives everybody the sums: before all-gathers have run, and in every round, whatever
the script asks for on whichever rank. Where the first steps ask for norms of order 1, sums of magnitudes go
along; where they ask for those of order inf, the largest magnitudes do so in an AllReduce of their own.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch._C._distributed_c10d import ReduceOp

from hocket.runtime.transfers.buckets import Bucket, BucketTransfer, Part
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.plan_layout import Layout
from hocket.runtime.transfers.queue import Queue
from hocket.runtime.transfers.training_device import device_of

EARLY_ORDERS = (1.0, 2.0, math.inf)
"""The orders of norms that shares of gradients tell of."""
USUAL_ORDERS = (2.0,)


_PowersOfPieces: TypeAlias = dict[tuple[Bucket, int], tuple[list[int], list[list[float]]]]
"""Of each piece the gradients' places in its bucket, and for each order what their norms are made of."""


@dataclass(frozen=True)
class PiecePowers:
    """The sums or maxima that norms are made of, of each gradient in this rank's share of a piece.

    ``indices``: the gradients' places in their bucket; ``values``: a row for each order, on the host.
    """

    bucket: Bucket
    piece: int
    round: int
    indices: list[int]
    values: torch.Tensor


class GradientNorms:
    """The norms of a ``layout``'s gradients, but sparse ones'; ``group`` is for them alone.

    ``orders``: of which orders, on all ranks the same, the smallest first, among them 2. Read and changed
    holding the queue's condition, but for :meth:`fetch_powers`.
    """

    def __init__(self, layout: Layout, group: GlooGroup, orders: Sequence[float]) -> None:
        self._group, self.orders = group, tuple(orders)
        self._first: dict[Bucket, int] = {}
        self._num_parameters = 0
        for bucket in layout.buckets:
            self._first[bucket] = self._num_parameters
            self._num_parameters += len(bucket.parameters)
        # They are added up in this order whenever they come, and so round alike.
        self._pieces = [(each.bucket, each.piece) for each in layout.transfers if _brings_sums(each)]
        self._powers: dict[int, _PowersOfPieces] = defaultdict(dict)
        self._begun_rounds = self._known_rounds = 0
        self._sums: dict[float, list[float]] = {}

    def fetch_powers(self, transfer: BucketTransfer) -> PiecePowers | None:
        """Those of what ``transfer`` has just brought; None: it brings no sums.

        Their values are there at the event that is recorded next.
        """
        if not _brings_sums(transfer):
            return None
        bucket, piece = transfer.bucket, transfer.piece
        indices, values = bucket.memory.powers(piece, self._group.rank, self._group.size, self.orders)
        fetched = device_of(values).fetch_to_host(values)
        return PiecePowers(bucket, piece, bucket.rounds, indices, values if fetched is None else fetched)

    def add(self, powers: PiecePowers) -> None:
        """The values of ``powers`` are there."""
        self._powers[powers.round][powers.bucket, powers.piece] = powers.indices, powers.values.tolist()

    @property
    def under_way(self) -> bool:
        """True if a round's squares are all here, and not known to be everywhere."""
        return self._known_rounds < self._begun_rounds or self._is_complete()

    def are_known(self, bucket: Bucket) -> bool:
        """Tell whether the sums of the round that ``bucket`` was sent in last are here."""
        return self._known_rounds >= bucket.rounds

    def norm(self, bucket: Bucket, index: int, order: float) -> float:
        """The norm of one of the orders of a gradient in the last round."""
        place = self._first[bucket] + index
        squares = self._sums[2.0][place]
        if order == 2 or math.isnan(squares):  # the largest number may be found beside what is none
            return math.sqrt(squares)
        return self._sums[order][place]

    def sum_up(self, queue: Queue, on_transfer: Callable[[str, float, float], None]) -> None:
        """Sum up round after round, until ``queue`` stops; ``on_transfer`` hears when, as of "norm"."""
        while True:
            with queue.condition:
                if not queue.wait_until(self._is_complete):
                    return
                self._begun_rounds += 1
                powers = self._powers.pop(self._begun_rounds)
            rows = [self._of_this_rank(powers, k) for k in range(len(self.orders))]
            started = time.perf_counter()
            sums = self._over_ranks(rows)
            on_transfer("norm", started, time.perf_counter())
            with queue.condition:
                self._sums = dict(zip(self.orders, sums, strict=True))
                self._known_rounds += 1
                queue.condition.notify()

    def _of_this_rank(self, powers: _PowersOfPieces, row: int) -> list[float]:
        """The part of each parameter that this rank's shares give, for the order of that number."""
        found = [0.0] * self._num_parameters
        largest = math.isinf(self.orders[row])
        for bucket, piece in self._pieces:
            first = self._first[bucket]
            indices, values = powers[bucket, piece]
            for index, value in zip(indices, values[row], strict=True):
                place = first + index
                found[place] = max(found[place], value) if largest else found[place] + value
        return found

    def _over_ranks(self, rows: list[list[float]]) -> list[list[float]]:
        """``rows``, one for each order, of all ranks."""
        num_sums = sum(map(math.isfinite, self.orders))
        sums, largest = (
            torch.tensor(some, dtype=torch.float64) for some in (rows[:num_sums], rows[num_sums:])
        )
        works = [self._group.reduce(sums)]
        if largest.numel():
            works.append(self._group.reduce(largest, ReduceOp.MAX))
        for work in works:
            work.wait()
        found: list[list[float]] = [*sums.tolist(), *largest.tolist()]
        return found

    def _is_complete(self) -> bool:
        return len(self._powers.get(self._begun_rounds + 1, ())) == len(self._pieces)


def _brings_sums(transfer: BucketTransfer) -> bool:
    return transfer.bucket.sparse is None and transfer.part is not Part.GATHER
