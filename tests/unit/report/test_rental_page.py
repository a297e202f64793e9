"""The page of a rental: which rows and columns it shows, and which colours offers have."""

from __future__ import annotations

from dataclasses import replace

from hocket.offers import Offer, Rental
from hocket.report.rental_page import render_rental, rental_figure
from hocket.report.rental_table import hardly_cheaper, row_columns, unlike, worth_a_look
from tests.unit.offers.test_rental_answer import FAST, SLOW, rented


def named(rental: Rental) -> list[tuple[str, int]]:
    return [(row.offer, row.nodes) for row in worth_a_look(rental)]


def test_rows_that_cost_hardly_less_than_a_faster_one_are_left_out() -> None:
    # Of a network that costs no time, as many nodes cost the same: a front of slightly cheaper, slower rows.
    rental = rented(replace(FAST, most_nodes=8))
    assert len(rental.front) > 2
    assert named(rental) == [("fast", 8), ("fast", 1)]
    assert hardly_cheaper(rental) == (
        f"{len(rental.front) - 2} more are left out: for each a faster one here costs under 1% more"
    )
    assert hardly_cheaper(rented(SLOW)) == ""
    assert f"{hardly_cheaper(rental)}." in render_rental(rental)


def test_the_answer_stays_within_limits() -> None:
    rental = rented(replace(FAST, most_nodes=8), budget=44.4445)
    assert {rental.cheapest, rental.fastest} <= set(worth_a_look(rental))


def test_a_page_leaves_out_what_is_the_same_in_every_row() -> None:
    rental = rented(FAST, SLOW)
    headings = [column.heading for column in unlike(row_columns(rental.front, "USD"))]
    assert "Update" in headings
    assert not {"Batch", "Exchange", "Summed"} & set(headings)
    assert {"Offer", "Nodes", "Hours", "Bound by"} <= set(headings)


def test_offers_of_the_front_have_the_first_colours() -> None:
    dear: list[Offer] = [replace(SLOW, name=f"dear{k}", price_per_hour=500 + k) for k in range(9)]
    figure = rental_figure(rented(*dear, FAST, SLOW))
    places = {each["name"]: each["place"] for each in figure["offers"]}
    assert sorted(places.values()) == list(range(11))
    assert {places["fast"], places["slow"]} == {0, 1}
