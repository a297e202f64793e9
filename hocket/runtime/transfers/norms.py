"""Squares of gradients on their way: what those of each parameter add up to over all ranks, once a round.

Each rank squares its share of what has been summed up as soon as that is there, and a small AllReduce of a
number for each parameter gives everybody the sums: before all-gathers have run, and in every round, whatever
the script asks for on whichever rank.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch

from hocket.runtime.transfers.buckets import Bucket, BucketTransfer, Part
from hocket.runtime.transfers.gloo_group import GlooGroup
from hocket.runtime.transfers.plan_layout import Layout
from hocket.runtime.transfers.queue import Queue
from hocket.runtime.transfers.training_device import device_of


@dataclass(frozen=True)
class PieceSquares:
    """The sum of squares of each gradient in this rank's share of a piece, in the bucket's ``round``.

    ``indices``: the gradients' places in their bucket; ``values``: in memory of the host.
    """

    bucket: Bucket
    piece: int
    round: int
    indices: list[int]
    values: torch.Tensor


class GradientNorms:
    """The sums of squares of a ``layout``'s gradients, but sparse ones'; ``group`` is for them alone.

    Read and changed holding the queue's condition, but for :meth:`fetch_squares`.
    """

    def __init__(self, layout: Layout, group: GlooGroup) -> None:
        self._group = group
        self._first: dict[Bucket, int] = {}
        self._num_parameters = 0
        for bucket in layout.buckets:
            self._first[bucket] = self._num_parameters
            self._num_parameters += len(bucket.parameters)
        # They are added up in this order whenever they come, and so round alike.
        self._pieces = [(each.bucket, each.piece) for each in layout.transfers if _brings_sums(each)]
        self._squares: dict[int, dict[tuple[Bucket, int], dict[int, float]]] = defaultdict(dict)
        self._begun_rounds = self._known_rounds = 0
        self._sums: list[float] = []

    def fetch_squares(self, transfer: BucketTransfer) -> PieceSquares | None:
        """Those of what ``transfer`` has just brought; None: it brings no sums.

        Their values are there at the event that is recorded next.
        """
        if not _brings_sums(transfer):
            return None
        bucket, piece = transfer.bucket, transfer.piece
        indices, values = bucket.memory.squares(piece, self._group.rank, self._group.size)
        fetched = device_of(values).fetch_to_host(values)
        return PieceSquares(bucket, piece, bucket.rounds, indices, values if fetched is None else fetched)

    def add(self, squares: PieceSquares) -> None:
        """The values of ``squares`` are there."""
        known = dict(zip(squares.indices, squares.values.tolist(), strict=True))
        self._squares[squares.round][squares.bucket, squares.piece] = known

    @property
    def under_way(self) -> bool:
        """True if a round's squares are all here, and not known to be everywhere."""
        return self._known_rounds < self._begun_rounds or self._is_complete()

    def are_known(self, bucket: Bucket) -> bool:
        """Tell whether the sums of the round that ``bucket`` was sent in last are here."""
        return self._known_rounds >= bucket.rounds

    def norm(self, bucket: Bucket, index: int) -> float:
        """The norm of a gradient in the last round."""
        return math.sqrt(self._sums[self._first[bucket] + index])

    def sum_up(self, queue: Queue, on_transfer: Callable[[str, float, float], None]) -> None:
        """Sum up round after round, until ``queue`` stops; ``on_transfer`` hears when, as of "norm"."""
        while True:
            with queue.condition:
                if not queue.wait_until(self._is_complete):
                    return
                self._begun_rounds += 1
                squares = self._squares.pop(self._begun_rounds)
            sums = [0.0] * self._num_parameters
            for bucket, piece in self._pieces:
                for index, square in squares[bucket, piece].items():
                    sums[self._first[bucket] + index] += square
            everywhere = torch.tensor(sums, dtype=torch.float64)
            started = time.perf_counter()
            self._group.reduce(everywhere).wait()
            on_transfer("norm", started, time.perf_counter())
            with queue.condition:
                self._sums = everywhere.tolist()
                self._known_rounds += 1
                queue.condition.notify()

    def _is_complete(self) -> bool:
        return len(self._squares.get(self._begun_rounds + 1, ())) == len(self._pieces)


def _brings_sums(transfer: BucketTransfer) -> bool:
    return transfer.bucket.sparse is None and transfer.part is not Part.GATHER
