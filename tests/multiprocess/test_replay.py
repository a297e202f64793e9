"""Replays end after as many steps as asked for, none shorter than its operations."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import pytest

from tests.multiprocess.launch import run
from tests.multiprocess.replay_cases import STEP_S

pytestmark = pytest.mark.slow

CASES = "tests.multiprocess.replay_cases"


def check(replay: Any, steps: int, rounds: int = 1) -> list[list[float]]:
    ends_s, out_of_order = replay
    assert [len(each) for each in ends_s] == [steps] * rounds
    for before_s, after_s in pairwise(chain.from_iterable(ends_s)):
        assert after_s - before_s >= 0.99 * STEP_S
    assert out_of_order == 0.0
    return list(ends_s)


@pytest.mark.parametrize(
    ("servers", "policy", "mode", "rounds"),
    [
        pytest.param(1, "random", "sync", 1, id="sync", marks=pytest.mark.slow),
        pytest.param(2, "tac", "async", 2, id="async", marks=pytest.mark.slow),
    ],
)
def test_servers_and_workers_replay(servers: int, policy: str, mode: str, rounds: int) -> None:
    steps = 4
    asked = {"servers": servers, "policy": policy, "mode": mode, "steps": steps, "rounds": rounds}
    ranks = run(f"{CASES}:with_servers", servers + 2, **asked)
    assert ranks[:servers] == [None] * servers
    firsts, seconds = (check(replay, steps, rounds) for replay, _ in ranks[servers:])
    for number, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        # However late one is ready, nobody has trained alone before.
        assert min(first[0], second[0]) >= max(ready_s[number] for _, ready_s in ranks[servers:])
    if mode == "sync":
        ((first,), (second,)) = firsts, seconds
        # Nobody ends the operations of a step before all have ended those of the one before.
        for one, other in ((first, second), (second, first)):
            assert all(end_s >= before_s for end_s, before_s in zip(one[1:], other[:-1], strict=True))


def test_all_reduces_keep_workers_together() -> None:
    steps = 4
    for replay in run(f"{CASES}:with_reductions", 2, policy="ddp", steps=steps):
        check(replay, steps)
