"""The sender's order: ranks are kept strictly, or preferred among what is ready."""

from __future__ import annotations

import threading

import pytest

from hocket.runtime.ps.wire.order_statistics import OrderStatistics
from hocket.runtime.ps.wire.outbox import Outbox


def taken(outbox: Outbox) -> list[object]:
    """What goes until the outbox is closed."""
    went: list[object] = []
    while (transfer := outbox.take()) is not None:
        went.append(transfer())
    return went


def putting(outbox: Outbox, *places: tuple[int, int]) -> None:
    for step, rank in places:
        outbox.put(step, rank, lambda place=(step, rank): place)


@pytest.mark.parametrize("strict", [True, False])
def test_of_what_is_there_the_lowest_rank_of_the_oldest_step_goes_first(strict: bool) -> None:
    outbox = Outbox(strict=strict)
    putting(outbox, (1, 0), (0, 2), (0, 0), (1, 1), (0, 1))
    outbox.put_last(lambda: "end")
    assert taken(outbox) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), "end"]


def test_a_strict_order_waits_for_the_rank_whose_turn_it_is() -> None:
    outbox = Outbox(strict=True)
    putting(outbox, (0, 1), (0, 2))
    went: list[object] = []
    thread = threading.Thread(target=lambda: went.extend(taken(outbox)))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    assert went == []
    putting(outbox, (0, 0))
    outbox.put_last(lambda: "end")
    thread.join(10)
    assert went == [(0, 0), (0, 1), (0, 2), "end"]


def test_what_waits_for_a_rank_that_never_comes_goes_before_the_last() -> None:
    outbox = Outbox(strict=True)
    putting(outbox, (0, 0), (1, 2), (1, 1))
    outbox.put_last(lambda: "end")
    assert taken(outbox) == [(0, 0), (1, 1), (1, 2), "end"]


def test_a_preference_does_not_wait() -> None:
    outbox = Outbox(strict=False)
    putting(outbox, (0, 2))
    first = outbox.take()
    putting(outbox, (0, 1), (0, 0))
    outbox.put_last(lambda: "end")
    assert first is not None
    assert [first(), *taken(outbox)] == [(0, 2), (0, 0), (0, 1), "end"]


def test_what_has_no_rank_overtakes_and_closing_drops_the_rest() -> None:
    outbox = Outbox(strict=True)
    putting(outbox, (0, 0))
    outbox.put_first(lambda: "values")
    outbox.close()
    assert taken(outbox) == ["values"]


def test_order_counts_what_was_overtaken() -> None:
    order = OrderStatistics()
    for overtaken in (False, False, True, False):
        order.note("pull", overtaken=overtaken)
    assert order.out_of_order("pull") == 0.25
    assert order.out_of_order("push") == 0.0
