"""Rows of ``bench shard``: variants against plain FSDP2, and against their forecasts."""

from __future__ import annotations

import pytest

from hocket.bench.sharding.sharding import rows_of
from hocket.bench.sharding.sharding_request import COMPUTE, HOCKET, PLAIN, Forecast, TimedSharding


def test_each_variant_is_compared_with_plain_fsdp2_and_with_its_forecast() -> None:
    timed = TimedSharding(
        workers=2,
        torch="2",
        parameter_bytes=8,
        plan="5 units, 1 ahead",
        units=5,
        explained=[],
        steps_s={COMPUTE: [0.5, 0.5, 0.5], PLAIN: [2.0, 4.0, 2.0], HOCKET: [1.0, 2.0, 4.0]},
        stolen={name: [0.0] * 3 for name in (COMPUTE, PLAIN, HOCKET)},
        full_bytes={PLAIN: 3, HOCKET: 5},
        held_bytes=9,
        limit_bytes=None,
        collectives={},
        forecasts={HOCKET: Forecast(step_s=1.5, full_bytes=5, held_bytes=9)},
    )
    compute, plain, ours = rows_of(timed)
    assert compute.speedup is None
    assert compute.full_bytes is None
    assert (plain.predicted_s, plain.difference, plain.predicted_full_bytes) == (None, None, None)
    assert plain.full_bytes == 3
    assert ours.speedup is not None
    assert ours.speedup.median == 2.0
    assert ours.difference == pytest.approx(-0.25)
    assert (ours.full_bytes, ours.predicted_full_bytes) == (5, 5)
