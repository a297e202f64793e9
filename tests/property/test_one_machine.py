"""The one-machine branch and bound against all orders of the items, and against some of them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hocket.sim.bounds.one_machine import SAME, without_preemption
from hocket.sim.bounds.reach import Floats, preemptive_bound
from tests.strategies import examples

Items = tuple[Floats, Floats, Floats]

# Few values, so that almost everything is a tie; none is what an item without work has.
WHOLE = st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 12))
REAL = st.tuples(*[st.floats(0.0, 3.0), st.floats(0.0, 1.0), st.floats(0.0, 3.0)])


def columns(rows: list[tuple[float, float, float]]) -> Items:
    head, work, tail = np.array(rows, float).reshape(-1, 3).T
    return head, work, tail


def length(items: Items, order: tuple[int, ...]) -> float:
    now = longest = 0.0
    for i in order:
        now = max(now, items[0][i]) + items[1][i]
        longest = max(longest, now + items[2][i])
    return longest


def shortest(items: Items) -> float:
    return min(length(items, order) for order in permutations(range(len(items[0]))))


def drawn(seed: int, num_items: int, spread: float, whole: bool) -> Items:
    """Heads and tails spread over a share of the work: around 0.6 Schrage's rule is rarely enough."""
    rng = np.random.default_rng(seed)
    work = rng.random(num_items) * (rng.random(num_items) < 0.8)
    head, tail = spread * work.sum() * rng.random((2, num_items))
    if whole:
        return np.floor(8 * head), np.floor(8 * work), np.floor(8 * tail)
    return head, work, tail


@given(st.lists(WHOLE, max_size=6))
@examples(400)
def test_whole_seconds_give_the_optimum_exactly(rows: list[tuple[float, float, float]]) -> None:
    items = columns(rows)
    assert without_preemption(*items, 2000) == shortest(items)


@given(st.lists(REAL, max_size=6))
@examples(200)
def test_floats_give_the_optimum_and_nothing_above(rows: list[tuple[float, float, float]]) -> None:
    items = columns(rows)
    best = shortest(items)
    assert best * (1.0 - SAME) <= without_preemption(*items, 2000) <= best


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.3, 0.6, 0.9]), st.booleans())
@examples(30)
def test_seven_items_that_need_branching(seed: int, spread: float, whole: bool) -> None:
    items = drawn(seed, 7, spread, whole)
    best = shortest(items)
    assert best * (1.0 - SAME) <= without_preemption(*items, 2000) <= best


@given(st.lists(WHOLE | REAL, max_size=6))
@examples(200)
def test_a_search_cut_short_is_a_bound_that_more_nodes_only_raise(
    rows: list[tuple[float, float, float]],
) -> None:
    items = columns(rows)
    bounds = [without_preemption(*items, nodes) for nodes in (0, 1, 2, 3, 5, 2000)]
    assert bounds == sorted(bounds)
    assert preemptive_bound(*items) * (1.0 - SAME) <= bounds[0]
    assert bounds[-1] <= shortest(items)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.3, 0.6, 0.9]), st.booleans(), st.sampled_from([1, 200]))
@examples(100)
def test_no_order_of_thirty_items_is_shorter_than_the_bound(
    seed: int, spread: float, whole: bool, max_nodes: int
) -> None:
    items = drawn(seed, 30, spread, whole)
    found = without_preemption(*items, max_nodes)
    assert preemptive_bound(*items) * (1.0 - SAME) <= found
    rng = np.random.default_rng(seed)
    # Orders near those by head and by tail are the ones that could be shorter; purely random ones are long.
    total = items[1].sum()
    for key in (items[0], -items[2], items[0] - items[2], rng.random(30)):
        for noise in (0.0, 0.02, 0.1, 0.1, 0.5):
            order = np.argsort(key + noise * total * rng.random(30))
            assert found <= length(items, tuple(order.tolist()))
