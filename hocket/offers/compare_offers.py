"""Renting: every offer with every number of nodes, predicted, and each one's hours and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

import msgspec

from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.graph.accumulated_step import accumulated
from hocket.offers.batches import Batches, batches_of
from hocket.offers.memory_check import fits_sharded, largest_fitting, largest_sharded, misfit
from hocket.offers.node_network import network_of
from hocket.offers.offer import Offer, check_offers
from hocket.offers.pareto_front import front_of
from hocket.offers.rental import OfferOutcome, Rental, RentalRow
from hocket.offers.steps_by_card import GivenSteps, StepsByCard, check_known
from hocket.offers.training_job import TrainingJob
from hocket.predictor import Prediction, predict
from hocket.predictor.prediction_range import computing_error, step_range_s
from hocket.text import counted

Progress = Callable[[int, int], object]
_HOUR_S = 3600.0
# A step of one sample is the same each time, so that few are enough; others are drawn.
_STEPS_ALIKE, _STEPS_DRAWN, _SKIPPED = 4, 220, 2


def rent(
    steps: StepGraph | Iterable[StepGraph],
    offers: Iterable[Offer],
    job: TrainingJob,
    *,
    progress: Progress | None = None,
) -> Rental:
    """The hours and the cost of ``job`` on each offer, with each number of nodes.

    Gradients are exchanged by all-reduce as DistributedDataParallel does, or, with as many cards as do not
    hold a step so, fully sharded in FSDP2's default units where they hold it then. Hours are those of the
    steps alone; cost is hours times nodes times price, as if billed by the second.

    Parameters
    ----------
    steps
        A step, or one for each card that offers have; all of one model. An offer of a card that has a
        datasheet and no step is left out.
    offers
        The offers.
    job
        The job.
    progress
        Called with offers done and in all.

    Returns
    -------
    The rows, a :class:`hocket.Rental`.

    Raises
    ------
    HocketError
        For offers that cannot be compared or whose card is unknown, steps that are for one card and batch or
        of two models, and where no offer is left.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> offer = hocket.Offer(
    ...     name="a", device=graph.device, gpus=1, price_per_hour=2, most_nodes=4, bandwidth_bps=10e9
    ... )
    >>> rental = hocket.rent(graph, [offer], hocket.TrainingJob(examples=1e6))
    >>> [row.nodes for row in rental]
    [1, 2, 3, 4]
    """
    graphs = [steps] if isinstance(steps, StepGraph) else list(steps)
    return rent_by(GivenSteps(graphs, fixed_batch=job.global_batch is None), offers, job, progress=progress)


def rent_by(
    steps: StepsByCard, offers: Iterable[Offer], job: TrainingJob, *, progress: Progress | None = None
) -> Rental:
    """As :func:`rent`, of steps that may be made when they are asked for."""
    listed = list(offers)
    check_offers(listed)
    check_known(steps, listed)
    outcomes = []
    for k, offer in enumerate(listed):
        outcomes.append(_outcome(steps, offer, job))
        if progress is not None:
            progress(k + 1, len(listed))
    rows = [row for outcome in outcomes for row in outcome.rows]
    if not rows:
        raise HocketError(_none_left(outcomes, steps.own_cards))
    front = front_of([(row.hours, row.cost) for row in rows])
    marked = iter([msgspec.structs.replace(row, on_front=k in front) for k, row in enumerate(rows)])
    return Rental([each.with_rows([next(marked) for _ in each.rows]) for each in outcomes], job, steps.model)


def _none_left(outcomes: Sequence[OfferOutcome], own_cards: Sequence[str]) -> str:
    first = outcomes[0]
    others = f", and so for {len(outcomes) - 1} more" if len(outcomes) > 1 else ""
    other_cards = own_cards and not any(each.offer.card in own_cards for each in outcomes)
    fix = "; FILE.py:FACTORY in place of a step's file derives one for each card" if other_cards else ""
    return f"no offer is left: {first.offer.name} ({first.offer.card}): {first.left_out}{others}{fix}"


def _outcome(steps: StepsByCard, offer: Offer, job: TrainingJob) -> OfferOutcome:
    """An offer's rows; predictions of one batch and accumulation are made together."""
    card = offer.card
    if why := steps.missing(card):
        return OfferOutcome(offer=offer, left_out=why)
    largest = _largest(steps, card, offer, job)
    by_batches: dict[Batches, list[int]] = {}
    skipped = []
    for nodes in range(1, offer.most_nodes + 1):
        found = batches_of(job, steps, card, nodes * offer.gpus, largest)
        if found is None:
            skipped.append(nodes)
        else:
            by_batches.setdefault(found, []).append(nodes)
    if not by_batches:
        return OfferOutcome(offer=offer, left_out=_undivided(job, steps, offer, largest))
    rows: list[RentalRow] = []
    graphs, too_large = [], []
    for batches, counts in by_batches.items():
        graph = steps.step(card, batches.size)
        whole = [nodes for nodes in counts if not misfit(graph, card, nodes * offer.gpus)]
        sharded = [
            nodes for nodes in counts if nodes not in whole and _is_sharded(graph, offer, nodes, batches)
        ]
        if over := [nodes for nodes in counts if nodes not in whole and nodes not in sharded]:
            tried_sharded = batches.accumulate == 1
            too_large.append(misfit(graph, card, over[-1] * offer.gpus, tried_sharded=tried_sharded))
        ways: list[tuple[Literal["allreduce", "fsdp"], list[int]]] = [("allreduce", whole), ("fsdp", sharded)]
        for architecture, fitting in ways:
            if fitting:
                graphs.append(graph)
                rows += [
                    _row(offer, nodes, batches, graph, prediction, job)
                    for nodes, prediction in _predictions(graph, batches, offer, fitting, architecture)
                ]
    if not rows:
        return OfferOutcome(offer=offer, left_out=too_large[0])
    return OfferOutcome(
        offer=offer,
        rows=tuple(sorted(rows, key=lambda row: row.nodes)),
        skipped=tuple(skipped),
        too_large=too_large[0] if too_large else "",
        steps=tuple(graphs),
        batches=tuple(steps.batches(card)),
    )


def _is_sharded(graph: StepGraph, offer: Offer, nodes: int, batches: Batches) -> bool:
    """Tell if cards that do not hold a step whole hold it sharded; summed batches are not modelled so."""
    network = replace(network_of(offer), num_workers=nodes * offer.gpus)
    return batches.accumulate == 1 and fits_sharded(graph, offer.card, network)


def _undivided(job: TrainingJob, steps: StepsByCard, offer: Offer, largest: int) -> str:
    """A clause on a global batch that no number of nodes has in batches that there are steps of."""
    parts, each = offer.gpus, f"{counted(offer.gpus, 'card')} a node"
    if job.accumulate is not None:
        parts, each = (
            parts * job.accumulate,
            f"{each} and {counted(job.accumulate, 'batch', 'batches')} a card",
        )
    asked = f"the global batch of {job.global_batch}"
    if not steps.batches(offer.card):
        return (
            f"{asked} is in no equal parts of 1 to {largest} examples for {each}; give a multiple of {parts}"
        )
    return (
        f"{asked} is in no parts of {largest} examples, the batch of the step's file, for {each}; give a"
        f" multiple of {parts * largest}, or the model, of which any batch is derived"
    )


def _largest(steps: StepsByCard, card: str, offer: Offer, job: TrainingJob) -> int:
    """The largest batch of a card; with a global batch, which smaller ones make, the largest that fits."""
    largest = steps.largest_batch(card)
    if job.global_batch is None:
        return largest
    cards = offer.gpus * offer.most_nodes
    step = steps.step(card, largest)
    fitting = largest_fitting(step, card, cards) or largest_sharded(step, card, cards)
    return min(largest, fitting or largest)


def _predictions(
    graph: StepGraph,
    batches: Batches,
    offer: Offer,
    counts: Sequence[int],
    architecture: Literal["allreduce", "fsdp"],
) -> Iterable[tuple[int, Prediction]]:
    """The prediction of each number of nodes; one node of one card has no network at all."""
    step = accumulated(graph, batches.accumulate)
    steps = _STEPS_ALIKE if graph.num_samples == 1 else _STEPS_DRAWN
    rows = predict(
        step,
        network_of(offer),
        workers=[nodes * offer.gpus for nodes in counts],
        architecture=architecture,
        steps=steps,
        skip=_SKIPPED,
    )
    return zip(counts, rows, strict=True)


def _row(
    offer: Offer, nodes: int, batches: Batches, graph: StepGraph, prediction: Prediction, job: TrainingJob
) -> RentalRow:
    gpus = nodes * offer.gpus
    global_batch = gpus * batches.size * batches.accumulate
    steps = job.steps(global_batch)
    hours = steps * prediction.step_s / _HOUR_S
    price = offer.price_per_hour * nodes
    low, high = _range(graph, batches.accumulate, prediction) or (None, None)
    return RentalRow(
        offer=offer.name,
        device=offer.card,
        nodes=nodes,
        gpus=gpus,
        architecture="fsdp" if prediction.architecture == "fsdp" else "allreduce",
        batch_size=batches.size,
        accumulate=batches.accumulate,
        global_batch=global_batch,
        steps=steps,
        step_s=prediction.step_s,
        throughput=prediction.throughput,
        hours=hours,
        hours_low=None if low is None else steps * low / _HOUR_S,
        hours_high=None if high is None else steps * high / _HOUR_S,
        cost=hours * price,
        cost_low=None if low is None else low * price,
        cost_high=None if high is None else high * price,
        efficiency=prediction.efficiency or 0.0,
        bottleneck=prediction.bottleneck,
        bottleneck_utilization=prediction.bottleneck_utilization,
        meets=job.is_met(hours * _HOUR_S, hours * price),
    )


def _range(graph: StepGraph, accumulate: int, prediction: Prediction) -> tuple[float, float] | None:
    """The shortest and the longest step by the error of a derived one; None where that is not known."""
    error = computing_error(accumulated(graph, accumulate))
    if error is None or error.source != "derived":
        return None
    busy = prediction.bottleneck_utilization if prediction.bottleneck == "network" else 0.0
    return step_range_s(prediction.step_s, error.seconds, busy * prediction.step_s)
