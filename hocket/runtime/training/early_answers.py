"""Norms and scalings of gradients on their way, where the plan sums some up in halves.

Then the norms of all gradients are known before they are gathered, and what scales one waits with it. So a
step that clips by norm goes on, whoever clips: the stand-ins that parameters have answer such calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hocket.runtime.lazy.promised_gradient import Scaling
from hocket.runtime.observe.liveness import LivenessWatch
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.culprit import naming_culprit
from hocket.runtime.transfers.buckets import Bucket
from hocket.runtime.transfers.norms import EARLY_ORDERS

if TYPE_CHECKING:
    from hocket.runtime.training.rounds import Rounds

_EXACT = (torch.float64, torch.complex128)
"""Types whose squares may be infinite where they are not."""


class EarlyAnswers:
    """The answers of one training; ``asking_steps``: in how many steps a script has asked, under any plan.

    ``asked_orders``: of which orders it has taken norms.
    """

    def __init__(self, rounds: Rounds, recorder: SpanRecorder, watch: LivenessWatch) -> None:
        self._rounds, self._recorder, self._watch = rounds, recorder, watch
        self._last_asked = -1
        self.asking_steps = 0
        self.asked_orders: set[float] = set()

    def note(self, order: float | None = None) -> None:
        """The script asks for what needs no gradient to have arrived, such as a norm of this ``order``."""
        if order is not None:
            self.asked_orders.add(order)
        if self._last_asked != self._rounds.barriers.steps:
            self._last_asked = self._rounds.barriers.steps
            self.asking_steps += 1

    def keeps(self, bucket: Bucket) -> bool:
        """Tell whether gradients of ``bucket`` are on their way and answer."""
        return self._rounds.has_early_norms(bucket)

    def knows(self, bucket: Bucket, order: float = 2.0) -> bool:
        """Tell whether ``bucket``, which is on its way, has norms before it arrives; may wait for those."""
        if order not in EARLY_ORDERS:
            return False
        self.note(order)
        rounds = self._rounds
        if not rounds.has_early_norms(bucket) or order not in rounds.channel.norm_orders:
            return False
        if not rounds.channel.knows_norms(bucket):
            started = self._recorder.now()
            with naming_culprit(self._watch, for_next=False):
                rounds.channel.wait_for_norms(bucket)
            self._recorder.record_span("wait", ["the norm"], started)
        return True

    def norm(self, bucket: Bucket, index: int, order: float = 2.0) -> float:
        """The norm of a gradient as it was sent; ``bucket`` has norms of this ``order``."""
        return self._rounds.channel.norm(bucket, index, order)

    def scale(self, bucket: Bucket, index: int, scaling: Scaling) -> bool:
        """Have a gradient scaled when it arrives; whether it can be: else it has to arrive first."""
        self.note()
        # What an optimizer is going to do with it, it does with what it was.
        if bucket.pending_steps or not self._rounds.has_early_norms(bucket):
            return False
        bucket.scalings.setdefault(index, []).append(scaling)
        self._rounds.follow_scaling(bucket)
        return True


@dataclass(frozen=True, eq=False)
class GradientPromise:
    """The gradient at ``index`` of ``bucket``."""

    answers: EarlyAnswers
    bucket: Bucket
    index: int

    def answers_early(self) -> bool:
        """Tell whether it answers anything before it arrives."""
        return self.answers.keeps(self.bucket)

    def norm(self, order: float) -> torch.Tensor | None:
        """Its norm, of what was put off, too; None: it has to arrive first."""
        view = self.bucket.memory.views[self.index]
        # Complex numbers travel as pairs of real ones, which have the same 2-norm alone.
        if (order != 2 and view.is_complex()) or not self.answers.knows(self.bucket, order):
            return None
        known = self.answers.norm(self.bucket, self.index, order)
        norm = view.new_full((), known, dtype=torch.float64)
        for scaling in self.bucket.scalings.get(self.index, ()):
            norm = (norm * scaling.factor).abs()
        return norm.to(view.dtype.to_real())

    def is_finite(self) -> bool | None:
        """Tell whether all its elements are; None: it has to arrive first, as it was scaled, say."""
        unsure = self.bucket.memory.views[self.index].dtype in _EXACT or self.index in self.bucket.scalings
        if unsure or not self.answers.knows(self.bucket):
            return None
        return math.isfinite(self.answers.norm(self.bucket, self.index))

    def scale(self, scaling: Scaling) -> bool:
        """Have it scaled when it arrives; False: it has to arrive first."""
        return self.answers.scale(self.bucket, self.index, scaling)


def put_scalings(bucket: Bucket) -> None:
    """``bucket`` has arrived: scale what a script has scaled since it was sent."""
    for index, scalings in bucket.scalings.items():
        for scaling in scalings:
            scaling.put(bucket.memory.views[index])
    # A device may read the factors yet, which may be another stream's: they are kept for a round.
    bucket.last_scalings, bucket.scalings = bucket.scalings, {}
