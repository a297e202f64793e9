"""Ranks with different numbers of batches: said within seconds, and never of a rank that only takes long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.multiprocess.launch import run

pytestmark = pytest.mark.slow

CASES = "tests.multiprocess.uneven_cases"
FIX = "give every rank the same number of batches (drop_last, or an even sampler), or train within"


@pytest.mark.parametrize(
    ("after", "steps", "buffers", "why"),
    [
        ("barrier", 20, False, "is in torch.distributed.barrier(), which waits for others"),
        ("gather", 20, True, "is in torch.distributed.all_gather_object(), which waits for others"),
        pytest.param(
            *("barrier", 3, True, "is in torch.distributed.barrier(), which waits for others"),
            marks=pytest.mark.long,
        ),
        pytest.param("destroy", 20, False, "has ended its process group", marks=pytest.mark.long),
        pytest.param("nothing", 20, False, "is done", marks=pytest.mark.long),
    ],
)
def test_who_waits_for_a_rank_without_batches_is_told(
    after: str, steps: int, buffers: bool, why: str
) -> None:
    options: dict[str, Any] = {"after": after, "steps": steps, "buffers": buffers}
    first, _ = run(f"{CASES}:fewer_batches", timeout_s=120, forked=False, **options)
    assert first.startswith("HocketError: training stopped: rank 1 ")
    assert why in first
    assert f"after {steps - 1} steps, while rank 0 is" in first
    assert FIX in first


def test_a_rank_that_takes_long_ends_nobody() -> None:
    first, second = run(f"{CASES}:takes_long", timeout_s=200)
    assert second == {"evaluating": [], "saving": [], "alone": []}
    assert first["evaluating"] == first["alone"] == []
    assert len(first["saving"]) in (1, 2)
    assert "for rank 1 that has trained 12 steps;" in first["saving"][0]
    assert "fine if that evaluates or saves, else give every rank the same number" in first["saving"][0]
