"""Figures of orders by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.bench.replay.accuracy_request import ReplayedRow
from hocket.bench.replay.orders import (
    OrdersMeasured,
    OrdersRequest,
    configuration,
    order_row,
    orders_document,
    steps_of,
)
from hocket.bench.replay.orders_table import orders_table
from hocket.errors import HocketError
from hocket.network.file import NetworkFile

SLOW = ReplayedRow(ends_s=[[[1.0, 3.0, 5.0, 7.0], [1.5, 4.0, 6.0, 8.0]]], out_of_order=0.0, stolen=0.0)
FAST = ReplayedRow(ends_s=[[[1.0, 2.0, 3.0, 4.0], [1.2, 2.2, 3.2, 4.2]]], out_of_order=0.001, stolen=0.02)


def test_a_step_ends_with_its_last_worker() -> None:
    seconds, spreads = steps_of(SLOW, 1)
    assert seconds.tolist() == [2.5, 2.0, 2.0]
    assert spreads.tolist() == [1.0, 1.0, 1.0]
    seconds, spreads = steps_of(SLOW, 2)
    assert seconds.tolist() == [2.0, 2.0]
    assert spreads.tolist() == [1.0, 1.0]


def test_ratios_are_of_rounds_and_above_one_where_the_first_policy_is_worse() -> None:
    row = order_row(("chain", 0.6), "tac", 8, ([FAST, FAST], [SLOW, FAST]), 1.5, skip=2)
    assert row.rate.median == row.rate.least == pytest.approx(8.0)
    assert row.rate_ratio.largest == pytest.approx(2.0)
    assert row.rate_ratio.least == pytest.approx(1.0)
    assert row.rate_ratio.median == pytest.approx(1.5)
    assert row.p95_s == pytest.approx(1.0)
    assert row.p95_ratio == pytest.approx(2.0)
    assert row.straggler == pytest.approx(0.2)
    assert row.straggler_ratio == pytest.approx((0.5 + 0.2) / 2 / 0.2)
    assert (row.out_of_order, row.stolen) == (0.001, 0.02)
    measured = OrdersMeasured(
        request=OrdersRequest(), network=NetworkFile(bandwidth_bps=1e9), rows=[row], wall_s=1.0
    )
    assert orders_table(measured.rows).row_count == 1
    assert orders_document(measured)["rows"][0]["rate_ratio"]["median"] == pytest.approx(1.5)


def test_rows_are_synchronous() -> None:
    found = configuration(OrdersRequest(workers=8, servers=2, transport="grpc"), "chain", "tac")
    assert (found.mode, found.workers, found.servers, found.transport) == ("sync", 8, 2, "grpc")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"policies": ("tac", "ddp")}, "policy for parameter servers 'ddp' is unknown"),
        ({"policies": ("tac",)}, "policy 'tac' alone compares with nothing"),
        ({"policies": ("tac", "tac")}, "policy 'tac' is named twice"),
        ({"steps": ()}, "no step was named"),
        ({"rhos": ()}, "no rho was named"),
        ({"rhos": (0.0,)}, "rho 0 is not between 0.01 and 100"),
        ({"transfer_s": float("nan")}, "transfer nan is not between"),
        ({"num_steps": 3}, "3 steps are not between 4 and 100000"),
        ({"skip": 10}, "skip 10 of 12 steps leaves too few; skip 1 to 9"),
        ({"rounds": 0}, "0 rounds are not between 1 and 1000"),
        ({"workers": 64}, "64 workers and 1 servers on one machine"),
    ],
)
def test_senseless_requests_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(HocketError, match=said):
        OrdersRequest(**fields)
