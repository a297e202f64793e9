"""The one-machine problem on instances that can be followed by hand; seconds."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.sim.bounds.one_machine import SAME, _ends, _schrage, without_preemption
from hocket.sim.bounds.reach import Floats, preemptive_bound


def seconds(*values: float) -> Floats:
    return np.array(values, float)


# Carlier (1982): Schrage's rule takes 53, the best order 50, and with preemption it would be 49.
HEAD = seconds(10, 13, 11, 20, 30, 0, 30)
WORK = seconds(5, 6, 7, 4, 3, 6, 2)
TAIL = seconds(7, 26, 24, 21, 8, 17, 0)


def test_carliers_example_has_his_bound_and_optimum() -> None:
    sequence = _schrage(HEAD, WORK, TAIL)
    assert sequence.tolist() == [5, 0, 1, 2, 3, 4, 6]
    assert _ends(HEAD, WORK, TAIL, sequence)[1] == 53.0
    assert preemptive_bound(HEAD, WORK, TAIL) == 49.0
    assert without_preemption(HEAD, WORK, TAIL, 100) == 50.0


def test_carliers_example_reversed_in_time() -> None:
    assert without_preemption(TAIL, WORK, HEAD, 100) == 50.0


def test_without_a_node_it_is_the_preemptive_bound() -> None:
    assert without_preemption(HEAD, WORK, TAIL, 0) == 49.0


def test_a_long_item_holds_up_an_urgent_one_or_waits_for_it() -> None:
    # Long first: 10 + 1 + 8. Urgent first: 1 + 1 + 10.
    head, work, tail = seconds(0, 1), seconds(10, 1), seconds(0, 8)
    assert preemptive_bound(head, work, tail) == 11.0
    assert without_preemption(head, work, tail, 100) == 12.0


def test_an_item_without_work_waits_too() -> None:
    # After the long item 10 + 0 + 9; before it 2 + 10.
    head, work, tail = seconds(0, 2), seconds(10, 0), seconds(0, 9)
    assert preemptive_bound(head, work, tail) == 11.0
    assert without_preemption(head, work, tail, 100) == 12.0


@pytest.mark.parametrize("max_nodes", [0, 1, 100])
def test_nothing_one_item_and_nothing_to_do(max_nodes: int) -> None:
    assert without_preemption(seconds(), seconds(), seconds(), max_nodes) == 0.0
    assert without_preemption(seconds(1), seconds(2), seconds(4), max_nodes) == 7.0
    assert without_preemption(seconds(0, 0), seconds(0, 0), seconds(0, 0), max_nodes) == 0.0


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 0.1, 1e9, 1e300])
def test_any_unit_will_do(scale: float) -> None:
    found = without_preemption(scale * HEAD, scale * WORK, scale * TAIL, 100)
    assert 50.0 * (1.0 - SAME) <= found / scale <= 50.0 * (1.0 + 1e-15)


def test_the_given_arrays_stay_as_they_are_and_may_be_views() -> None:
    table = np.stack([HEAD, WORK, TAIL], axis=1)
    table.flags.writeable = False
    assert without_preemption(table[:, 0], table[:, 1], table[:, 2], 100) == 50.0


def test_four_hundred_items_that_need_branching() -> None:
    rng = np.random.default_rng(1)
    work = rng.random(400)
    head, tail = 0.6 * work.sum() * rng.random((2, 400))
    schrage_s = _ends(head, work, tail, _schrage(head, work, tail))[1]
    preemptive_s = preemptive_bound(head, work, tail)
    assert preemptive_s < schrage_s * (1.0 - 1e-6)
    found = without_preemption(head, work, tail, 2000)
    assert preemptive_s * (1.0 - SAME) <= found <= schrage_s
