"""A training job to rent machines for: how many examples, in which batches, by when and for how much."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hocket.errors import HocketError
from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, duration_text, scaled_text

MOST_EXAMPLES = 1e18
_MOST_BATCH = 10**9
_MOST_ACCUMULATED = 10**6


@dataclass(frozen=True, repr=False, kw_only=True)
class TrainingJob(Summarized):
    """A number of examples to train on, in batches, within limits of time and cost.

    Parameters
    ----------
    examples
        Examples that are trained on, each as often as it comes; above 0.
    global_batch
        Examples of one update over all cards ("strong scaling": more cards, smaller batches). None: each card
        has the step's batch, and more cards make a larger one ("weak scaling").
    accumulate
        Batches of a card whose gradients are summed before they are exchanged. None: one; with
        ``global_batch`` as few as keep a card's batch within the step's.
    deadline_s
        Seconds that the job may take; None: any.
    budget
        The most that it may cost, in the offers' currency; None: anything.

    Raises
    ------
    HocketError
        When a value is out of its range.

    Examples
    --------
    >>> import hocket
    >>> hocket.TrainingJob(examples=90e6, deadline_s=24 * 3600).deadline_s
    86400
    """

    examples: float
    global_batch: int | None = None
    accumulate: int | None = None
    deadline_s: float | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        _check_amount("examples", self.examples, MOST_EXAMPLES, "90e6")
        if self.deadline_s is not None:
            _check_amount("deadline", self.deadline_s, 1e12, "86400 seconds")
        if self.budget is not None:
            _check_amount("budget", self.budget, 1e18, "2000")
        for what, count, most in (
            ("global batch", self.global_batch, _MOST_BATCH),
            ("accumulate", self.accumulate, _MOST_ACCUMULATED),
        ):
            if count is None:
                continue
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= most:
                raise HocketError(f"{what} {count!r} is not a whole number from 1 to {most}; give e.g. 4")

    def steps(self, global_batch: int) -> int:
        """Updates that the job takes with that global batch; the last one may be of fewer examples."""
        return math.ceil(self.examples / global_batch)

    def is_met(self, seconds: float, cost: float) -> bool:
        """True if such a time and cost are within its limits."""
        in_time = self.deadline_s is None or seconds <= self.deadline_s
        return in_time and (self.budget is None or cost <= self.budget)

    def _summary(self) -> ObjectSummary:
        lines = []
        if self.global_batch is not None:
            lines.append(("global batch", str(self.global_batch)))
        if self.accumulate is not None:
            lines.append(("accumulated", f"{counted(self.accumulate, 'batch', 'batches')} of each card"))
        if self.deadline_s is not None:
            lines.append(("deadline", duration_text(self.deadline_s)))
        if self.budget is not None:
            lines.append(("budget", f"{self.budget:g}"))
        return ObjectSummary(f"Job of {scaled_text(self.examples, 'examples')}", lines)


def _check_amount(what: str, value: float, most: float, example: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= most:
        raise HocketError(f"{what} {value!r} is not above 0, to {most:g}; give e.g. {example}")
