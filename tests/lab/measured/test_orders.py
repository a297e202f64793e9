"""``hocket bench orders`` on a small lab: every policy is replayed in turns, and its order kept."""

from __future__ import annotations

import json

import pytest

from hocket.bench.replay import orders
from tests.unit.cli.test_commands import hocket

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("measured_shortly")
def test_orders_are_replayed_in_turns_and_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "_LAB", name)
    arguments = ("--step", "chain", "--policy", "reverse,fifo", "--rho", "1", "--workers", "2")
    arguments += ("--rounds", "2", "--rate", "250mbit", "--transfer", "100ms")
    arguments += ("--steps", "6", "--skip", "2", "--json")
    ran = hocket("bench", "orders", *arguments)
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    reverse, fifo = document["rows"]
    assert (reverse["policy"], fifo["policy"]) == ("reverse", "fifo")
    assert reverse["rate_ratio"] == {"median": 1.0, "least": 1.0, "largest": 1.0}
    # A chain that pulls its last layer first computes nothing while it pulls.
    assert fifo["predicted_ratio"] > 1.1
    assert fifo["rate_ratio"]["median"] > 1.0
    assert fifo["out_of_order"] == reverse["out_of_order"] == 0.0
    assert "row 4 of 4" in ran.err
