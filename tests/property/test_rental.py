"""The Pareto front against looking at all pairs, and a rental against every number of nodes one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.graph import load_step
from hocket.graph.accumulated_step import accumulated
from hocket.offers import Offer, TrainingJob, rent
from hocket.offers.pareto_front import front_of
from tests.naive import rental as naive
from tests.unit.cli.test_commands import GOLDEN

FEW = st.integers(0, 5).map(float)


@given(st.lists(st.tuples(FEW, FEW), max_size=12))
def test_the_front_is_of_points_that_nothing_beats(points: list[tuple[float, float]]) -> None:
    found = front_of(points)
    assert {points[k] for k in found} == naive.front(points)
    assert len(found) == len({points[k] for k in found}), "of equal points one is on it"


@st.composite
def offers(draw: st.DrawFn) -> list[Offer]:
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
    return [
        Offer(
            name=name,
            device="toy",
            gpus=draw(st.integers(1, 4)),
            price_per_hour=draw(st.sampled_from([0.5, 1.0, 7.0])),
            most_nodes=draw(st.integers(1, 4)),
            nics=draw(st.integers(1, 2)),
            bandwidth_bps=draw(st.sampled_from([50.0, 1e3, 1e9])),
            intra_bps=draw(st.sampled_from([1e3, 1e9])),
            latency_s=draw(st.sampled_from([0.0, 1e-3])),
        )
        for name in names
    ]


@given(offers(), st.integers(1, 5000), st.integers(1, 3), st.sampled_from([None, 3600.0]))
@settings(max_examples=25)
def test_a_rental_is_every_offer_with_every_number_of_nodes(
    offered: list[Offer], examples: int, batches: int, deadline_s: float | None
) -> None:
    graph = load_step(GOLDEN / "branches.step.json")
    job = TrainingJob(examples=examples, accumulate=batches, deadline_s=deadline_s)
    rental = rent(graph, offered, job)
    expected = naive.rented(accumulated(graph, batches), offered, job)
    assert [(row.offer, row.nodes) for row in rental] == [each[:2] for each in expected]
    assert [row.hours for row in rental] == pytest.approx([each[2] for each in expected], rel=1e-9)
    assert [row.cost for row in rental] == pytest.approx([each[3] for each in expected], rel=1e-9)
    within = [row for row in rental if deadline_s is None or 3600 * row.hours <= deadline_s]
    assert [row for row in rental if row.meets] == within
    if not within:
        assert rental.cheapest is rental.fastest is None
        return
    assert rental.cheapest is not None
    assert rental.fastest is not None
    assert rental.cheapest.cost == min(row.cost for row in within)
    assert rental.fastest.hours == min(row.hours for row in within)
    points = [(row.hours, row.cost) for row in rental]
    assert {(row.hours, row.cost) for row in rental.front} == naive.front(points)
    for outcome in rental.outcomes:
        own = [row for row in rental if row.offer == outcome.offer.name]
        meeting = [row for row in own if row.meets] or own
        cheapest, fastest = outcome.best
        assert cheapest.cost == min(row.cost for row in meeting)
        assert fastest.hours == min(row.hours for row in meeting)
