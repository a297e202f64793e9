"""Exchanges as steps took them: each instant shared out, against a naive twin that walks it in ticks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.network import MeasuredLine
from hocket.runtime.sharding import seen_exchanges as seen
from hocket.runtime.sharding.seen_exchanges import seen_exchanges, shared_s
from hocket.runtime.sharding.shard_events import StepEvents, Transfer, Transferring

LINE = MeasuredLine(a_s=0.5, b_s_per_byte=1.0)
spans = st.tuples(st.sampled_from(["gather", "reduce"]), st.integers(0, 12), st.integers(0, 8))


def step(*transfers: tuple[str, float, float], size_bytes: int = 4) -> StepEvents:
    return StepEvents(
        0.0,
        transfers=[
            Transfer(kind, 0, size_bytes, float(begin), float(begin + length))  # type: ignore[arg-type]
            for kind, begin, length in transfers
        ],
    )


@given(st.lists(spans, max_size=7))
def test_every_instant_is_shared_out_as_tick_by_tick(transfers: list[tuple[str, int, int]]) -> None:
    kinds: tuple[Transferring, ...] = ("gather", "reduce")
    twin = dict.fromkeys(kinds, 0.0)
    for tick in range(20):
        on = [kind for kind, begin, length in transfers if begin <= tick < begin + length]
        for kind in on:
            twin[kind] += 1 / len(on)  # type: ignore[index]
    for kind in kinds:
        assert shared_s(step(*transfers), kind) == pytest.approx(twin[kind])


@pytest.fixture
def fastest_rank_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The least that another rank took; this one alone where there is none."""
    others: list[float] = []
    monkeypatch.setattr(seen, "max_over_ranks", lambda values, group: [max([*values, *(-s for s in others)])])
    return others


@pytest.mark.parametrize(("others", "expected"), [([], 0.5), ([3.0], 0.25), ([9.0], 0.5)])
def test_the_rank_where_exchanges_take_least_tells_what_a_byte_takes(
    fastest_rank_s: list[float], others: list[float], expected: float
) -> None:
    fastest_rank_s += others
    steps = [step(("reduce", 0, 3), ("reduce", 3, extra + 2), ("gather", 9, 9)) for extra in (0, 0, 5)]
    found = seen_exchanges(LINE, steps, None)  # type: ignore[arg-type]
    assert (found.a_s, found.b_s_per_byte) == (LINE.a_s, pytest.approx(expected))


def test_without_exchanges_that_tell_more_the_line_stays(fastest_rank_s: list[float]) -> None:
    under_way = StepEvents(0.0, transfers=[Transfer("reduce", 0, 4, 0.0)])
    for steps in ([], [step(("gather", 0, 3))], [under_way], [step(("reduce", 0, 0))]):
        assert seen_exchanges(LINE, steps, None) == LINE  # type: ignore[arg-type]
