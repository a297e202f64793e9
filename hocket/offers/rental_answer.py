"""Answers in words from a rental: what to rent, what it rests on, and what it does not include."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hocket.network import USUAL_STARTUP_S
from hocket.offers.node_network import inside_bps
from hocket.offers.offer import Offer
from hocket.offers.offers_file import example_offers, parse_offers
from hocket.offers.pareto_front import cheapest_of, fastest_of
from hocket.offers.spare import spare_text
from hocket.text import (
    amount_text,
    capitalized,
    caution_lines,
    counted,
    digits,
    duration_text,
    hours_text,
    listed,
    percent_text,
    scaled_text,
)

if TYPE_CHECKING:
    from hocket.offers.rental import OfferOutcome, Rental, RentalRow

BOUND_BY = {"network": "network", "worker processors": "computing"}
"""Bottlenecks of all-reduce in a renter's words."""
_NAMED = 3
_LEVEL = 1.02  # times the lowest cost, up to which others are worth a line
_SAME, _HARDLY_DEARER = 1.0005, 1.1  # times a cost: told as equal, and as so many percent more
_MUCH_FASTER = 0.8  # of the cheapest's hours, where they take less


def verdicts(rental: Rental) -> list[str]:
    """The answer: the cheapest and the fastest within the limits, or how near to them offers come."""
    cheapest, fastest = rental.cheapest, rental.fastest
    if cheapest is None or fastest is None:
        return _unmet(rental)
    limits = _limits(rental)
    within = f" within {limits}" if limits else ""
    if cheapest == fastest:
        lines = [f"Cheapest and fastest{within}: {_told(rental, cheapest)}"]
    else:
        lines = [f"Cheapest{within}: {_told(rental, cheapest)}"]
        level = fastest_of([row for row in rental if row.meets and row.cost <= _LEVEL * cheapest.cost])
        if level not in (None, fastest) and level.hours < _MUCH_FASTER * cheapest.hours:
            lines.append(f"For hardly more: {_told(rental, level)}; {_gain(cheapest, level)}")
        updates = ""
        if fastest.global_batch != cheapest.global_batch:
            sizes = fastest.global_batch, cheapest.global_batch
            updates = f", in updates of {sizes[0]:,} examples instead of {sizes[1]:,}"
        lines.append(f"Fastest{within}: {_told(rental, fastest)}; {_gain(cheapest, fastest)}{updates}")
    sure = _surely_in_time(rental, cheapest)
    return [*lines, *([] if sure is None else [sure])]


def _told(rental: Rental, row: RentalRow) -> str:
    """A row in a sentence: ``64 h100 in 8 nodes (a): 14.2 hours, 1,830 USD; efficiency 93%, ...``."""
    outcome = next(each for each in rental.outcomes if each.offer.name == row.offer)
    said = f"{row.machines} ({row.offer}): {hours_text(row.hours)}{_range(row)}"
    said += f", {amount_text(row.cost, rental.currency)}"
    step = next((each for each in outcome.steps if each.batch_size == row.batch_size), None)
    spare = spare_text(row, outcome.offer, rental.job, step)
    said += f"; efficiency {row.efficiency:.0%}, {_bound(outcome, row)}"
    return f"{said}, with {spare}" if spare else said


def _gain(cheapest: RentalRow, fastest: RentalRow) -> str:
    """A clause on how much faster and dearer one row is than the cheapest."""
    faster, dearer = cheapest.hours / fastest.hours, fastest.cost / cheapest.cost
    if dearer < _HARDLY_DEARER:
        more = percent_text(dearer - 1)
        return (
            f"{digits(faster)}x as fast as the cheapest for {f'{more} more' if dearer > _SAME else 'as much'}"
        )
    return f"{digits(faster)}x as fast as the cheapest for {digits(dearer)}x its cost"


def _range(row: RentalRow) -> str:
    if row.hours_low is None or row.hours_high is None:
        return ""
    low, high, at = (hours_text(each) for each in (row.hours_low, row.hours_high, row.hours))
    if len({text.partition(" ")[2] for text in (low, high, at)}) == 1:
        low, high = low.partition(" ")[0], high.partition(" ")[0]
    return f" ({low} to {high})"


def _bound(outcome: OfferOutcome, row: RentalRow) -> str:
    """A clause on what bounds a row, and from which number of nodes on it is the network."""
    bound_from, most = outcome.bound_from, outcome.rows[-1].nodes
    if bound_from is None:
        return "compute-bound" if most == 1 else f"compute-bound up to {counted(most, 'node')}"
    if bound_from == outcome.rows[0].nodes:
        return "network-bound"
    since = f"from {counted(bound_from, 'node')} on"
    if bound_from <= row.nodes:
        return f"network-bound {since}"
    return f"compute-bound (the network is the limit {since})"


def _limits(rental: Rental) -> str:
    job = rental.job
    limits = [
        *([] if job.deadline_s is None else [hours_text(job.deadline_s / 3600)]),
        *([] if job.budget is None else [amount_text(job.budget, rental.currency)]),
    ]
    return " and ".join(limits)


def _unmet(rental: Rental) -> list[str]:
    """Lines where no row is within the limits: the nearest to each of them."""
    job, rows = rental.job, list(rental)
    near = []
    if job.deadline_s is not None:
        affordable = [row for row in rows if job.budget is None or row.cost <= job.budget]
        row = fastest_of(affordable or rows)
        assert row is not None, "a rental has rows"
        limit = amount_text(job.budget, rental.currency) if job.budget is not None and affordable else ""
        near.append(f"the fastest{f' within {limit}' if limit else ''} is {_told(rental, row)}")
    if job.budget is not None:
        in_time = [row for row in rows if job.deadline_s is None or 3600 * row.hours <= job.deadline_s]
        row = cheapest_of(in_time or rows)
        assert row is not None, "a rental has rows"
        limit = hours_text(job.deadline_s / 3600) if job.deadline_s is not None and in_time else ""
        near.append(f"the cheapest{f' within {limit}' if limit else ''} is {_told(rental, row)}")
        if amount_text(row.cost, "") == amount_text(job.budget, ""):
            near[-1] += f" ({row.cost:.9g} to more digits)"
    return [f"No offer is within {_limits(rental)}: {near[0]}", *map(capitalized, near[1:])]


def _surely_in_time(rental: Rental, cheapest: RentalRow) -> str | None:
    """A line on the cheapest that is in time at its longest, too, where the answer may not be."""
    deadline_s = rental.job.deadline_s
    if deadline_s is None or cheapest.hours_high is None or 3600 * cheapest.hours_high <= deadline_s:
        return None
    sure = cheapest_of([row for row in rental if row.meets and 3600 * (row.hours_high or 0.0) <= deadline_s])
    limit = hours_text(deadline_s / 3600)
    if sure is None:
        return f"None is within {limit} at the longest of its range"
    return f"Within {limit} also at the longest of its range: {_told(rental, sure)}"


def cautions(rental: Rental) -> list[str]:
    """Lines on prices that are made up, and the caveats of the steps of the rows that the answer names.

    Alike ones of several cards are one.
    """
    named = [row for row in (rental.cheapest, rental.fastest) if row is not None]
    found: dict[str, dict[str, None]] = {}
    for row in named:
        outcome = next(each for each in rental.outcomes if each.offer.name == row.offer)
        for step in outcome.steps:
            if step.caveat and step.batch_size == row.batch_size:
                alike = step.caveat.replace(row.device, "this card")
                found.setdefault(alike, {})[row.device] = None
    lines = [line for caveat, cards in found.items() for line in caution_lines(caveat, list(cards))]
    return [*_made_up_prices(rental), *lines]


def _made_up_prices(rental: Rental) -> list[str]:
    """A line on offers that cost what those of the shipped example do; none where none does."""
    example = {_priced(offer) for offer in parse_offers(example_offers(), "the example")}
    names = [each.offer.name for each in rental.outcomes if each.rows and _priced(each.offer) in example]
    if not names:
        return []
    of = listed(names) if len(names) <= _NAMED else f"{counted(len(names), 'offer')}"
    return [f"Caution: prices of {of} are those of the printed example, which are made up; put in yours"]


def _priced(offer: Offer) -> tuple[str, str, int, float]:
    return offer.name, offer.device, offer.gpus, offer.price_per_hour


def left_out(rental: Rental) -> list[str]:
    """A line on each reason for which offers, or numbers of nodes, are not among the rows."""
    by_reason: dict[str, list[str]] = {}
    for outcome in rental.outcomes:
        if outcome.left_out:
            by_reason.setdefault(outcome.left_out, []).append(f"{outcome.offer.name} ({outcome.offer.card})")
    lines = [f"Left out: {listed(names)}: {why}" for why, names in by_reason.items()]
    lines += [
        f"Left out: {_too_few(each)} of {each.offer.name}: {each.too_large}"
        for each in rental.outcomes
        if each.too_large and each.rows
    ]
    skipped: dict[tuple[int, ...], list[OfferOutcome]] = {}
    for outcome in rental.outcomes:
        if outcome.skipped and outcome.rows:
            skipped.setdefault(outcome.batches, []).append(outcome)
    return lines + [_undivided(rental, batches, alike) for batches, alike in skipped.items()]


def _undivided(rental: Rental, batches: Sequence[int], outcomes: Sequence[OfferOutcome]) -> str:
    """A line on numbers of nodes that the global batch is not divided over, and what would have them.

    ``batches``: those that steps were given of, empty where any is derived.
    """
    few = [
        f"{counted(len(each.skipped), 'number')} of nodes of {each.offer.name}" for each in outcomes[:_NAMED]
    ]
    if len(outcomes) > _NAMED:
        few.append(f"some of {counted(len(outcomes) - _NAMED, 'more offer', 'more offers')}")
    job = rental.job
    said = f"Left out: {listed(few)}, whose cards cannot share {job.global_batch:,} examples"
    each = "" if job.accumulate is None else f", {job.accumulate} a card,"
    if not batches:
        return f"{said} in equal batches{each} that fit and are no larger than --batch-size"
    sizes = listed([f"{size:,}" for size in batches])
    return (
        f"{said} in batches of {sizes}{each or ','} which alone there are steps of; give the model in place"
        " of step files, as smaller batches are derived of it, or a step file for each batch"
    )


def assumptions(rental: Rental) -> list[str]:
    """Clauses on what the answer was computed for, the step's first."""
    batches = sorted({row.batch_size for row in rental})
    worlds = sorted({row.global_batch for row in rental})
    precisions = sorted({step.precision for each in rental.outcomes for step in each.steps if step.precision})
    model = f"{rental.model} in {' and '.join(precisions)}" if precisions else rental.model
    per_card = f"{_span(batches)} a card"
    if rental.job.global_batch is None:
        update = f"batches of {per_card} at any number of cards, so updates of {_span(worlds)} examples"
    else:
        update = f"updates of {rental.job.global_batch} examples in batches of {per_card}"
    accumulated = sorted({row.accumulate for row in rental})
    if accumulated != [1]:
        update += f", {_span(accumulated)} of them summed up before an exchange"
        is_chosen = rental.job.accumulate is None and not all(each.batches for each in rental.outcomes)
        update += " (a larger --batch-size sums up fewer)" if is_chosen else ""
    needed = scaled_text(rental.job.examples, "").replace(" ", "")
    alike = "whatever the update's size" if len(worlds) > 1 else ""
    said = [model, update, f"{needed} examples {alike}".rstrip(), "all-reduce as DistributedDataParallel's"]
    if sharded := [row for row in rental if row.architecture == "fsdp"]:
        cards = listed(sorted({row.device for row in sharded}))
        each = "each of which updates its own shard"
        said.append(
            f"where {cards} do not hold the model whole, fully sharded (FSDP2) over all cards, {each}"
        )
    return [*said, *_of_nodes([each.offer for each in rental.outcomes if each.rows])]


def not_included(rental: Rental) -> str:
    """A sentence on the ranges, and on what neither they nor the hours include."""
    errors = sorted({step.expected_error for each in rental.outcomes for step in each.steps})
    missing = (
        "reading data, cards that are slower at times, checkpoints, failures, starting machines and a network"
        " that others use; cost is by the second, without disks and traffic"
    )
    if not errors[-1]:
        ranges = "Hours have no range, as the error of this step is not known"
    else:
        size = _span_of_shares([error for error in errors if error])
        unknown = " (steps without one: not known)" if not errors[0] else ""
        within = f"Ranges of hours: derived steps are within {size}{unknown}, as each step's caution says"
        ranges = f"{within}; the network's part has none"
    if any(step.memory is None for each in rental.outcomes for step in each.steps):
        ranges += ". Memory is not checked: a step's file does not say what it needs"
    return f"{ranges}. Not included: {missing}"


def _of_nodes(offers: Sequence[Offer]) -> list[str]:
    """Clauses on what offers do not say of their nodes."""
    by_sheet = [each for each in offers if each.gpus > 1 and each.intra_bps is None]
    said = []
    if by_sheet:
        rates = {each.card: inside_bps(each) or 0.0 for each in by_sheet}
        shown = listed([f"{card} {scaled_text(bps / 8, 'B/s')}" for card, bps in rates.items()])
        said.append(f"inside of nodes by the datasheet: {shown}")
    several = [each for each in offers if each.most_nodes > 1 and each.latency_s is None]
    if several:
        said.append(f"{duration_text(USUAL_STARTUP_S)} a message between nodes of {_names(several)}")
    return said


def _names(offers: Iterable[Offer]) -> str:
    names = [each.name for each in offers]
    return listed(names) if len(names) <= _NAMED else f"{len(names)} offers"


def _too_few(outcome: OfferOutcome) -> str:
    """The numbers of nodes that do not hold the model, in words: ``1 to 5 nodes``."""
    there = {*(row.nodes for row in outcome.rows), *outcome.skipped}
    numbers = [nodes for nodes in range(1, outcome.offer.most_nodes + 1) if nodes not in there]
    if len(numbers) < numbers[-1] - numbers[0] + 1:
        return f"{counted(len(numbers), 'number')} of nodes"
    return counted(numbers[0], "node") if len(numbers) == 1 else f"{_span(numbers)} nodes"


def _span(numbers: Sequence[int]) -> str:
    """``256``, ``2,048 to 32,768``: of rising numbers."""
    shown = [f"{number:,}" for number in (numbers[0], numbers[-1])]
    return " to ".join(dict.fromkeys(shown))


def _span_of_shares(shares: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(percent_text(share) for share in (shares[0], shares[-1])))
