"""The rows of a rental: each offer with each number of nodes, its time and cost, and which are the best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hocket.graph import StepGraph
from hocket.notebook import ObjectSummary, Summarized, data_frame
from hocket.offers.offer import Offer
from hocket.offers.pareto_front import cheapest_of, fastest_of
from hocket.offers.rental_answer import verdicts
from hocket.offers.training_job import TrainingJob
from hocket.predictor.prediction_curves import network_bound
from hocket.text import counted

if TYPE_CHECKING:
    from hocket.predictor.predictions import Page


class RentalRow(msgspec.Struct, frozen=True, kw_only=True):
    """An offer with a number of nodes: the hours and the cost of a job, and what limits it.

    The fields are the keys of a row of ``rent --json``.

    Attributes
    ----------
    offer, device
        The offer's name, and the card's.
    nodes, gpus
        Numbers of nodes, and of cards in all of them.
    architecture
        "allreduce", each card with the whole model, or "fsdp", fully sharded over all cards.
    batch_size, accumulate, global_batch
        Examples of a card's batch, the batches that it sums up for an update, and all examples of an update.
    steps
        Updates that the job takes.
    step_s
        Seconds from one update to the next.
    throughput
        Examples a second over all cards.
    hours, hours_low, hours_high
        The job's time, and its range by the error that the step's durations may have; None where that is not
        known, as of a measured step.
    cost, cost_low, cost_high
        As many hours of all nodes, in the currency of the offers.
    efficiency
        Throughput over what all cards would reach without a network.
    bottleneck, bottleneck_utilization
        "worker processors" or "network": the busier one, and the fraction of the time that it is busy.
    meets
        True if hours and cost are within the job's limits.
    on_front
        True if no row is both as fast and as cheap, and better in one.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> offer = hocket.Offer(name="a", device=graph.device, gpus=1, price_per_hour=2, most_nodes=1)
    >>> rental = hocket.rent(graph, [offer], hocket.TrainingJob(examples=1e6))
    >>> rental[0].nodes
    1
    """

    offer: str
    device: str
    nodes: int
    gpus: int
    architecture: Literal["allreduce", "fsdp"] = "allreduce"
    batch_size: int
    accumulate: int
    global_batch: int
    steps: int
    step_s: float
    throughput: float
    hours: float
    hours_low: float | None = None
    hours_high: float | None = None
    cost: float
    cost_low: float | None = None
    cost_high: float | None = None
    efficiency: float
    bottleneck: str
    bottleneck_utilization: float
    meets: bool
    on_front: bool = False

    @property
    def machines(self) -> str:
        """The cards and nodes, in words: ``64 h100 in 8 nodes``, and whether they share the model out."""
        sharded = ", fully sharded" if self.architecture == "fsdp" else ""
        return f"{self.gpus} {self.device} in {counted(self.nodes, 'node')}{sharded}"


@dataclass(frozen=True, kw_only=True)
class OfferOutcome:
    """The outcome of an offer: its rows by nodes, or why there are none.

    ``skipped``: numbers of nodes that the global batch does not divide into; ``too_large``: why other numbers
    are not there; ``steps``: the card's, one for each batch that rows have; ``batches``: those that
    steps were given of, empty where any is derived.
    """

    offer: Offer
    rows: tuple[RentalRow, ...] = ()
    left_out: str = ""
    skipped: tuple[int, ...] = ()
    too_large: str = ""
    steps: tuple[StepGraph, ...] = ()
    batches: tuple[int, ...] = ()

    def with_rows(self, rows: Iterable[RentalRow]) -> OfferOutcome:
        """This outcome with ``rows`` in place of its own."""
        return replace(self, rows=tuple(rows))

    @property
    def best(self) -> tuple[RentalRow, RentalRow]:
        """The cheapest and the fastest row, of those within the job's limits if there are any."""
        rows = [row for row in self.rows if row.meets] or self.rows
        cheapest, fastest = cheapest_of(rows), fastest_of(rows)
        assert cheapest is not None, "an offer that is not left out has rows"
        assert fastest is not None, "an offer that is not left out has rows"
        return cheapest, fastest

    @property
    def bound_from(self) -> int | None:
        """The number of nodes from which on the network is the bottleneck; None: never up to the most."""
        bound = network_bound(self.rows)
        return bound[0].nodes if bound else None


class Rental(Summarized, list[RentalRow]):
    """A list of :class:`hocket.RentalRow`: each offer with each number of nodes, in the order of the offers.

    Attributes
    ----------
    outcomes
        The outcome of each offer.
    job
        The job.
    model
        The model that is trained.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> offer = hocket.Offer(name="a", device=graph.device, gpus=1, price_per_hour=2, most_nodes=1)
    >>> rental = hocket.rent(graph, [offer], hocket.TrainingJob(examples=1e6))
    >>> rental.cheapest == rental.fastest == rental[0]
    True
    """

    def __init__(self, outcomes: Iterable[OfferOutcome], job: TrainingJob, model: str) -> None:
        self.outcomes = tuple(outcomes)
        super().__init__(row for outcome in self.outcomes for row in outcome.rows)
        self.job = job
        self.model = model

    @property
    def currency(self) -> str:
        """The currency of all prices; "" where none is told."""
        return self.outcomes[0].offer.currency

    @property
    def front(self) -> list[RentalRow]:
        """Rows that nothing beats in both time and cost, the fastest first."""
        return sorted((row for row in self if row.on_front), key=lambda row: row.hours)

    @property
    def cheapest(self) -> RentalRow | None:
        """The cheapest row within the job's limits, the faster of two; None where none is within them."""
        return cheapest_of([row for row in self if row.meets])

    @property
    def fastest(self) -> RentalRow | None:
        """The fastest row within the job's limits, the cheaper of two; None where none is within them."""
        return fastest_of([row for row in self if row.meets])

    def of_offer(self, name: str) -> list[RentalRow]:
        """The rows of one offer, by nodes."""
        return [row for row in self if row.offer == name]

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row an offer and number of nodes.

        Raises
        ------
        HocketError
            When pandas is not installed.
        """
        return data_frame(map(msgspec.structs.asdict, self))

    def plot(self, path: str | Path | None = None) -> Page:
        """The page that ``hocket rent --plot`` writes: cost over time of each offer, and the front.

        Parameters
        ----------
        path
            A file to write the page to, whole or not at all; None: none.

        Returns
        -------
        The page, a :class:`hocket.predictor.predictions.Page`, which a notebook shows.

        Raises
        ------
        HocketError
            When the file cannot be written.
        """
        from hocket.predictor.predictions import Page
        from hocket.report.rental_page import render_rental

        page = Page(render_rental(self))
        if path is not None:
            page.save(path)
        return page

    def _summary(self) -> ObjectSummary:
        lines = [("answer", line) for line in verdicts(self)]
        return ObjectSummary(f"Rental of {self.model}: {counted(len(self.outcomes), 'offer')}", lines)
