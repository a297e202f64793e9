"""Answers of a rental in words: what to rent within limits, how near offers come, and what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket.errors import HocketError, UnknownNameError
from hocket.graph import load_step
from hocket.offers import Offer, Rental, TrainingJob, rent
from hocket.offers.compare_offers import rent_by
from hocket.offers.derived_steps import DerivedSteps
from hocket.offers.offers_file import example_offers, parse_offers
from hocket.offers.rental_answer import assumptions, cautions, left_out, not_included, verdicts
from tests.unit.cli.test_commands import GOLDEN

STEP = load_step(GOLDEN / "branches.step.json")
FAST = Offer(
    name="fast", device="toy", gpus=1, price_per_hour=10, most_nodes=4, bandwidth_bps=1e9, currency="USD"
)
SLOW = replace(FAST, name="slow", price_per_hour=2, bandwidth_bps=500.0)


def rented(*offers: Offer, error: float = 0.0, **job: float) -> Rental:
    return rent(replace(STEP, expected_error=error), offers, TrainingJob(examples=4e3, **job))


def test_the_cheapest_the_fastest_and_where_the_network_binds() -> None:
    cheapest, fastest = verdicts(rented(FAST, SLOW))
    assert cheapest.startswith("Cheapest: 1 toy in 1 node (slow): 4.44 hours, 8.89 USD; efficiency 100%")
    assert cheapest.endswith("; efficiency 100%, compute-bound (the network is the limit from 2 nodes on)")
    assert fastest.startswith("Fastest: 4 toy in 4 nodes (fast): 1.11 hours, 44.4 USD; efficiency 100%")
    assert "; 4x as fast as the cheapest for 5x its cost, in updates of 16 examples instead of 4" in fastest


def test_more_nodes_for_hardly_more_are_named() -> None:
    lines = verdicts(rented(FAST, replace(FAST, name="b200", price_per_hour=40, most_nodes=8)))
    assert lines[1].startswith("For hardly more: 4 toy in 4 nodes (fast): 1.11 hours, 44.4 USD")
    assert lines[1].endswith("; 4x as fast as the cheapest for as much")


def test_prices_of_the_printed_example_are_said_to_be_made_up() -> None:
    example = parse_offers(example_offers(), "the example")[0]
    theirs = replace(FAST, name=example.name, device=example.device, gpus=example.gpus)
    priced = replace(theirs, price_per_hour=example.price_per_hour)
    mine = replace(theirs, price_per_hour=example.price_per_hour + 1)
    said = [
        cautions(rent([replace(STEP, device=example.device)], [offer], TrainingJob(examples=4e3)))
        for offer in (priced, mine)
    ]
    assert said == [
        [
            f"Caution: prices of {example.name} are those of the printed example, which are made up;"
            " put in yours"
        ],
        [],
    ]


def test_limits_are_said_and_ranges_beside_them() -> None:
    lines = verdicts(rented(FAST, error=0.1, deadline_s=4500.0, budget=50.0))
    assert lines[0] == (
        "Cheapest and fastest within 1.25 hours and 50 USD: 4 toy in 4 nodes (fast): 1.11 hours (1 to 1.22),"
        " 44.4 USD; efficiency 100%, compute-bound up to 4 nodes, with 11% of the time and 11% of the"
        " budget to spare"
    )
    unsure = verdicts(rented(FAST, error=0.3, deadline_s=4500.0))
    assert unsure[-1] == "None is within 1.25 hours at the longest of its range"
    sure = verdicts(rented(FAST, error=0.1, deadline_s=4.5 * 3600))
    assert sure[-1].startswith("Within 4.5 hours also at the longest of its range: 2 toy in 2 nodes")


def test_limits_that_no_offer_meets_are_answered_with_the_nearest() -> None:
    (line,) = verdicts(rented(FAST, SLOW, deadline_s=60.0))
    assert line.startswith("No offer is within 1 min: the fastest is 4 toy in 4 nodes (fast): 1.11 hours")
    (line,) = verdicts(rented(FAST, SLOW, budget=1.0))
    assert line.startswith("No offer is within 1 USD: the cheapest is 1 toy in 1 node (slow)")
    lines = verdicts(rented(FAST, SLOW, deadline_s=4100.0, budget=10.0))
    assert lines[0].startswith("No offer is within 1.14 hours and 10 USD: the fastest within 10 USD is ")
    assert lines[1].startswith("The cheapest within 1.14 hours is 4 toy in 4 nodes (fast)")


def test_offers_without_a_step_are_left_out_and_none_left_is_refused() -> None:
    other = replace(FAST, name="other", device="L4")
    assert left_out(rented(FAST, other)) == [
        "Left out: other (l4): no step is for such a card, steps are for toy alone"
    ]
    with pytest.raises(HocketError, match=r"no offer is left: other \(l4\): no step is .* FILE.py:FACTORY"):
        rented(other)
    with pytest.raises(HocketError, match=r"no offer is left: v \(v100\): precision bf16: v100 has no units"):
        rent_by(
            DerivedSteps(target="alexnet_v2", precision="bf16"),
            [replace(FAST, name="v", device="v100")],
            TrainingJob(examples=1),
        )


def test_a_card_that_neither_a_step_nor_a_datasheet_is_of_is_refused_with_the_nearest() -> None:
    slip = replace(FAST, name="slip", device="H10")
    with pytest.raises(
        UnknownNameError, match=r"^offer 'slip': device 'h10' is unknown; did you mean 'h100'"
    ) as e:
        rented(FAST, slip)
    assert "choose one of: toy, k80, " in str(e.value)
    with pytest.raises(
        UnknownNameError, match=r"^offer 'fast': device 'toy' is unknown; choose one of: k80, "
    ):
        rent_by(DerivedSteps(target="alexnet_v2"), [FAST], TrainingJob(examples=1))


def test_numbers_of_nodes_that_a_global_batch_does_not_divide_into_are_said() -> None:
    rental = rent(STEP, [FAST], TrainingJob(examples=96, global_batch=8))
    (line,) = left_out(rental)
    assert line == (
        "Left out: 2 numbers of nodes of fast, whose cards cannot share 8 examples in"
        " batches of 4, which alone there are steps of; give the model in place of step files, as smaller"
        " batches are derived of it, or a step file for each batch"
    )
    with pytest.raises(HocketError, match="the global batch of 7 is in no parts of 4 examples"):
        rent(STEP, [FAST], TrainingJob(examples=96, global_batch=7))


def test_what_it_rests_on_is_said() -> None:
    weak = "; ".join(assumptions(rented(FAST)))
    assert weak.startswith(
        "toy; batches of 4 a card at any number of cards, so updates of 4 to 16 examples; 4k"
    )
    assert "4k examples whatever the update's size" in weak
    assert "10 µs a message between nodes of fast" in weak
    strong = assumptions(rent(STEP, [FAST], TrainingJob(examples=96, global_batch=8)))
    assert (
        strong[1]
        == "updates of 8 examples in batches of 4 a card, 1 to 2 of them summed up before an exchange"
    )
    assert not_included(rented(FAST)).startswith(
        "Hours have no range, as the error of this step is not known. "
    )
    assert "derived steps are within 14%, as" in not_included(rented(FAST, error=0.14))


def test_alike_caveats_of_several_cards_are_one() -> None:
    graphs = [replace(STEP, device=card, caveat=f"{card} is not fitted") for card in ("l4", "a10")]
    offers = [replace(FAST, name="x", device="l4"), replace(FAST, name="y", device="a10", price_per_hour=9)]
    rental = rent(graphs, offers, TrainingJob(examples=96))
    assert cautions(rental) == ["Caution for a10 and l4: this card is not fitted"] or cautions(rental) == [
        "Caution for a10: this card is not fitted"
    ]


def test_the_page_and_the_summary_have_the_answer() -> None:
    rental = rented(FAST, SLOW)
    page = rental.plot().html
    assert "Cheapest: 1 toy in 1 node (slow)" in page
    assert "</html>" in page
    assert repr(rental).startswith("Rental of toy: 2 offers")
    assert repr(FAST).startswith("Offer 'fast'")
    assert repr(rental.job).startswith("Job of 4 kexamples")
