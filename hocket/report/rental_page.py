"""The page of a rental: the answer, cost over time of every offer, and its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hocket.columns import led_by
from hocket.offers.rental_answer import (
    assumptions,
    cautions,
    left_out,
    not_included,
    verdicts,
)
from hocket.report.alternatives import sentences_text
from hocket.report.html_page import Tile, render_page
from hocket.report.rental_table import (
    hardly_cheaper,
    offer_columns,
    offers_of,
    row_columns,
    unlike,
    worth_a_look,
)
from hocket.text import amount_text, capitalized, hours_text, scaled_text

if TYPE_CHECKING:
    from hocket.offers.rental import Rental, RentalRow


def render_rental(rental: Rental) -> str:
    """The page of ``rental``: the answer first, then the picture, then tables."""
    currency, offers = rental.currency, offers_of(rental)
    answered = [row for row in (rental.cheapest, rental.fastest) if row is not None]
    shown = worth_a_look(rental)
    columns = unlike(row_columns(shown, currency))
    return render_page(
        "rental.html",
        {"rental": rental_figure(rental)},
        title=f"{rental.model}: what to rent",
        setup=_setup(rental),
        assumed="; ".join(assumptions(rental)),
        tiles=_tiles(rental),
        answers=verdicts(rental),
        cautions=cautions(rental),
        left_out=left_out(rental),
        not_included=not_included(rental),
        best=offer_columns(offers, currency),
        best_marked=[any(row in answered for row in each.best) for each in offers],
        front=led_by(columns, "Offer", "Hours", "Cost", "Nodes"),
        front_marked=[row in answered for row in shown],
        hardly_cheaper=hardly_cheaper(rental),
        limited=rental.job.deadline_s is not None or rental.job.budget is not None,
        texts={"front": _text(rental)},
    )


def _setup(rental: Rental) -> str:
    """The job in a few words."""
    job = rental.job
    said = [f"{scaled_text(job.examples, '')}".replace(" ", "") + " examples"]
    if job.deadline_s is not None:
        said.append(f"within {hours_text(job.deadline_s / 3600)}")
    if job.budget is not None:
        said.append(f"for at most {amount_text(job.budget, rental.currency)}")
    return ", ".join(said)


def rental_figure(rental: Rental) -> dict[str, Any]:
    """Hours and cost of each offer's rows, the places of the front, and the limits."""
    job = rental.job
    compared = [outcome for outcome in rental.outcomes if outcome.rows]
    # Of more offers than colours, those of the front get one for themselves.
    places = sorted(compared, key=lambda outcome: not any(row.on_front for row in outcome.rows))
    return {
        "offers": [
            {
                "name": outcome.offer.name,
                "place": places.index(outcome),
                "device": outcome.offer.card,
                "nodes": [row.nodes for row in outcome.rows],
                "gpus": [row.gpus for row in outcome.rows],
                "hours": [row.hours for row in outcome.rows],
                "cost": [row.cost for row in outcome.rows],
                "low": [row.hours_low for row in outcome.rows],
                "high": [row.hours_high for row in outcome.rows],
                "efficiency": [row.efficiency for row in outcome.rows],
                "bottleneck": [row.bottleneck for row in outcome.rows],
            }
            for outcome in compared
        ],
        "front": {
            "hours": [row.hours for row in rental.front],
            "cost": [row.cost for row in rental.front],
        },
        "chosen": [
            {"name": name, "hours": row.hours, "cost": row.cost, "machines": row.machines}
            for name, row in _chosen(rental)
        ],
        "deadline": None if job.deadline_s is None else job.deadline_s / 3600,
        "budget": job.budget,
        "currency": rental.currency,
    }


def _chosen(rental: Rental) -> list[tuple[str, RentalRow]]:
    cheapest, fastest = rental.cheapest, rental.fastest
    if cheapest is None or fastest is None:
        return []
    if cheapest == fastest:
        return [("cheapest and fastest", cheapest)]
    return [("cheapest", cheapest), ("fastest", fastest)]


def _tiles(rental: Rental) -> list[Tile]:
    """The chosen rows: hours and cost of each."""
    tiles = []
    for name, row in _chosen(rental):
        price = amount_text(row.cost, rental.currency)
        if row.hours_low is None or row.hours_high is None:
            note = f"{row.machines} ({row.offer})"
        else:
            note = (
                f"{hours_text(row.hours_low)} to {hours_text(row.hours_high)}; {row.machines} ({row.offer})"
            )
        tiles.append(Tile(capitalized(name), f"{hours_text(row.hours)}, {price}", note))
    note = "nothing is both faster and cheaper"
    tiles.append(Tile("Choices worth a look", str(len(worth_a_look(rental))), note))
    left = sum(not outcome.rows for outcome in rental.outcomes)
    note = f"{left} left out" if left else "all of the file"
    tiles.append(Tile("Offers compared", str(len(rental.outcomes) - left), note))
    return tiles


def _text(rental: Rental) -> str:
    """The front's rows that are worth a look in words, the fastest first."""
    return sentences_text(
        [
            f"{row.machines} ({row.offer}) {hours_text(row.hours)}, {amount_text(row.cost, rental.currency)}"
            for row in worth_a_look(rental)
        ]
    )
