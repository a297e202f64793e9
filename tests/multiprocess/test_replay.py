"""Replays end after as many steps as asked for, none shorter than its operations."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.multiprocess.launch import run
from tests.multiprocess.replay_cases import SECONDS

CASES = "tests.multiprocess.replay_cases"


def check(ends_s: list[float], steps: int) -> None:
    assert len(ends_s) == steps
    for before_s, after_s in pairwise(ends_s):
        assert after_s - before_s >= 6 * SECONDS


@pytest.mark.parametrize(
    ("servers", "policy", "synchronous"), [(1, "random", True), (2, "tac", False)], ids=["sync", "async"]
)
def test_servers_and_workers_replay(servers: int, policy: str, synchronous: bool) -> None:
    steps = 4
    ranks = run(
        f"{CASES}:with_servers",
        servers + 2,
        servers=servers,
        policy=policy,
        synchronous=synchronous,
        steps=steps,
    )
    assert ranks[:servers] == [[]] * servers
    first, second = ranks[servers:]
    check(first, steps)
    check(second, steps)
    if synchronous:
        # Nobody ends a step that somebody else has not begun, and begins one before all have ended the last.
        for one, other in ((first, second), (second, first)):
            assert all(end_s >= begun_s for end_s, begun_s in zip(one[1:], other[:-1], strict=True))


def test_all_reduces_keep_workers_together() -> None:
    steps = 4
    for ends_s in run(f"{CASES}:with_reductions", 2, policy="ddp", steps=steps):
        check(ends_s, steps)


def test_a_server_that_is_gone_ends_the_replay() -> None:
    _, said = run(f"{CASES}:gone")
    assert said
