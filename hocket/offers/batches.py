"""The batch of each card, and how many of them make an update, for a number of cards."""

from __future__ import annotations

from typing import NamedTuple

from hocket.offers.steps_by_card import StepsByCard
from hocket.offers.training_job import TrainingJob


class Batches(NamedTuple):
    """The examples of a card's batch, and the batches that it sums up for an update."""

    size: int
    accumulate: int


def batches_of(job: TrainingJob, steps: StepsByCard, card: str, cards: int, largest: int) -> Batches | None:
    """The batches of so many cards, of at most ``largest``; None where the global batch has no such parts.

    With a global batch, accumulation that is not asked for keeps a card's batch within the largest that there
    is a step of, and to no less than half of what it could be.
    """
    if job.global_batch is None:
        return Batches(largest, job.accumulate or 1)
    share, rest = divmod(job.global_batch, cards)
    if rest or not share:
        return None
    if job.accumulate is not None:
        size, rest = divmod(share, job.accumulate)
        found = Batches(size, job.accumulate)
        return None if rest or not _is_had(found, largest, steps, card) else found
    fewest = -(-share // largest)
    for accumulate in range(fewest, 2 * share // min(share, largest) + 1):
        found = Batches(share // accumulate, accumulate)
        if share % accumulate == 0 and _is_had(found, largest, steps, card):
            return found
    return None


def _is_had(found: Batches, largest: int, steps: StepsByCard, card: str) -> bool:
    return 1 <= found.size <= largest and steps.has(card, found.size)
