"""A clause on how near a row of a rental is to the job's limits and to its cards' memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hocket.datasheets import DEVICES
from hocket.offers.memory_check import sharded_bytes
from hocket.offers.node_network import network_of
from hocket.offers.offer import Offer
from hocket.text import listed, percent_text

if TYPE_CHECKING:
    from hocket.graph import StepGraph
    from hocket.offers.rental import RentalRow
    from hocket.offers.training_job import TrainingJob

_NEAR = 0.2  # of a limit: what is farther from it is not worth a word


def spare_text(row: RentalRow, offer: Offer, job: TrainingJob, step: StepGraph | None) -> str:
    """``1.2% of the time and 5% of the memory to spare``; "" where no limit is near, or one is not kept.

    ``step``: the row's, which says what memory it needs; None: unknown.
    """
    shares = {
        "the time": None if job.deadline_s is None else 3600 * row.hours / job.deadline_s,
        "the budget": None if job.budget is None else row.cost / job.budget,
        "each card's memory": None if step is None else _memory_share(row, offer, step),
    }
    left = {what: 1 - share for what, share in shares.items() if share is not None}
    near = [f"{percent_text(spare)} of {what}" for what, spare in left.items() if 0 <= spare < _NEAR]
    return f"{listed(near)} to spare" if near else ""


def _memory_share(row: RentalRow, offer: Offer, step: StepGraph) -> float | None:
    """The share of a card's memory that a step of ``row`` needs; None where that is not known."""
    if step.memory is None or row.device not in DEVICES:
        return None
    card = DEVICES[row.device]
    if row.architecture == "fsdp":
        return sharded_bytes(step, replace(network_of(offer), num_workers=row.gpus)) / card.memory_bytes
    return step.memory.needed(workers=row.gpus).total_bytes / card.capacity_bytes
