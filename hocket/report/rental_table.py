"""The rows of a rental as tables, for the terminal and the page alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hocket.columns import Cell, Column, number_column, percent_column, text_column, time_column
from hocket.offers.rental_answer import BOUND_BY
from hocket.text import UNDEFINED, decimals_for, number_text, time_unit

if TYPE_CHECKING:
    from hocket.offers.rental import OfferOutcome, Rental, RentalRow

_CHEAPER = 0.99  # times the cost of a faster row, from which on a slower one is worth a look
_THOUSAND = 1e4  # examples a second, from which a column is in thousands


def row_columns(rows: Sequence[RentalRow], currency: str) -> list[Column]:
    """The columns of ``rows``, each an offer with a number of nodes."""
    steps_s = [row.step_s for row in rows]
    return [
        text_column("Offer", [row.offer for row in rows]),
        _counts("Nodes", [row.nodes for row in rows]),
        _counts("GPUs", [row.gpus for row in rows]),
        number_column("Hours", [row.hours for row in rows]),
        _costs("Cost", rows, currency),
        _rates(rows),
        _efficiency(rows),
        text_column(
            "Bound by",
            [f"{BOUND_BY[row.bottleneck]} {row.bottleneck_utilization:.0%}" for row in rows],
            "The busier of computing and the network, and for how much of the time.",
        ),
        Column("Range", list(map(_range, rows)), "Of hours, by the error of derived steps.", "h").as_wide(),
        time_column("Step", steps_s, time_unit(steps_s), "From one update to the next.").as_wide(),
        _counts("Batch", [row.batch_size for row in rows], "Of a card.").as_wide(),
        text_column("Exchange", [row.architecture for row in rows], "fsdp: fully sharded.").as_wide(),
        _counts("Summed", [row.accumulate for row in rows], "Batches of a card for an update.").as_wide(),
        _counts("Update", [row.global_batch for row in rows], "Examples over all cards.").as_wide(),
    ]


def offers_of(rental: Rental) -> list[OfferOutcome]:
    """The offers that have rows, the cheapest first."""
    return sorted((each for each in rental.outcomes if each.rows), key=lambda each: each.best[0].cost)


def offer_columns(outcomes: Sequence[OfferOutcome], currency: str) -> list[Column]:
    """The columns of ``outcomes``, a row an offer: its cheapest and its fastest number of nodes."""
    cheapest, fastest = [each.best[0] for each in outcomes], [each.best[1] for each in outcomes]
    return [
        text_column("Offer", [each.offer.name for each in outcomes]),
        _counts("Cheapest: nodes", [row.nodes for row in cheapest], short="Cheapest"),
        number_column("Hours", [row.hours for row in cheapest]),
        _costs("Cost", cheapest, currency),
        _counts("Fastest: nodes", [row.nodes for row in fastest], short="Fastest"),
        number_column("its hours", [row.hours for row in fastest], short="Hours"),
        _costs("its cost", fastest, currency, short="Cost"),
        _efficiency(fastest),
        number_column(
            "Network-bound from",
            [each.bound_from for each in outcomes],
            "The number of nodes from which on the network is busier than the cards.",
            short="Bound from",
            decimals=0,
        ),
    ]


def worth_a_look(rental: Rental) -> list[RentalRow]:
    """Rows of the front that cost less than every faster one by 1% at least, and the answer's rows."""
    kept: list[RentalRow] = []
    for row in rental.front:
        if not kept or row.cost <= _CHEAPER * kept[-1].cost or row in (rental.cheapest, rental.fastest):
            kept.append(row)
    return kept


def hardly_cheaper(rental: Rental) -> str:
    """A clause on rows of the front that :func:`worth_a_look` leaves out; "" where there are none."""
    more = len(rental.front) - len(worth_a_look(rental))
    left = "is left out: a faster one here" if more == 1 else "are left out: for each a faster one here"
    return f"{more} more {left} costs under 1% more" if more else ""


def unlike(columns: Sequence[Column]) -> list[Column]:
    """Those of ``columns`` that a page needs: of what only ``--wide`` shows, what differs between rows."""
    return [
        column for column in columns if not column.only_wide or len({cell.text for cell in column.cells}) > 1
    ]


def _counts(heading: str, values: Iterable[int], meaning: str = "", *, short: str = "") -> Column:
    return number_column(heading, list(values), meaning, short=short, decimals=0)


def _rates(rows: Sequence[RentalRow]) -> Column:
    thousands = max(row.throughput for row in rows) >= _THOUSAND
    scaled = [row.throughput / (1e3 if thousands else 1.0) for row in rows]
    return number_column("Examples/s", scaled, unit="k" if thousands else "")


def _efficiency(rows: Sequence[RentalRow]) -> Column:
    shares = [row.efficiency for row in rows]
    meaning = "Examples/s over all cards' without a network; above 100% where they share updates out."
    return percent_column("Efficiency", shares, meaning, short="Eff.", decimals=0)


def _costs(heading: str, rows: Sequence[RentalRow], currency: str, *, short: str = "") -> Column:
    """Amounts with as many decimals each, thousands apart where they are large."""
    largest = max(row.cost for row in rows)
    decimals = 0 if largest >= 999.5 else 1 if largest >= 99.95 else 2
    cells = [
        Cell(f"{row.cost:,.0f}" if row.cost >= 999.5 else number_text(row.cost, decimals), row.cost)
        for row in rows
    ]
    return Column(heading, cells, unit=currency, short=short)


def _range(row: RentalRow) -> Cell:
    if row.hours_low is None or row.hours_high is None:
        return Cell(UNDEFINED, None)
    decimals = decimals_for([row.hours_high])
    return Cell(f"{row.hours_low:.{decimals}f}–{row.hours_high:.{decimals}f}", row.hours_low)
