"""Times as traces have them: local, or with a zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.cluster.workloads.trace_times import TraceClock


@given(
    st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2100, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
    st.booleans(),
)
def test_times_with_a_zone_are_seconds_since_1970(local: datetime, minutes: int, iso: bool) -> None:
    when = local.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    text = when.isoformat() if iso else f"{local:%Y-%m-%d %H:%M:%S.%f} {when:%z}"
    assert TraceClock().seconds(text) == pytest.approx(when.timestamp(), abs=1e-6)
    plain = f"{local:%Y-%m-%d %H:%M:%S}"
    assert TraceClock().seconds(plain) == local.replace(microsecond=0, tzinfo=UTC).timestamp()


def test_other_signs_of_a_zone() -> None:
    clock = TraceClock()
    seconds = {
        clock.seconds(text) for text in ("2020-06-09T18:41:01Z", "2020-06-09 18:41:01 UTC", "1591728061")
    }
    assert seconds == {1591728061.0}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("2017-10-03 00:08:00 PDT", "with or without a zone like \\+08:00 or Z"),
        ("2020-06-31 18:41:01", "is not a time like 2020-06-09 18:41:01"),
        ("2020-06-09 18:41", "is not a time like"),
        ("09.06.2020 18:41:01", "is not a time like"),
        ("2020-06-09 18:41:01+99:00", "is not a time like"),
        ("", "'' is not a time like"),
        ("9" * 100_000, "is not a time like"),
    ],
)
def test_texts_that_are_no_times(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        TraceClock().seconds(text)


def test_a_zone_among_times_without_is_refused() -> None:
    clock = TraceClock()
    clock.seconds("2020-06-09 18:41:01")
    with pytest.raises(ValueError, match="has a zone and '2020-06-09 18:41:01' has none; give all times one"):
        clock.seconds("2020-06-09 18:41:02Z")
    clock = TraceClock()
    clock.seconds("2020-06-09 18:41:01Z")
    with pytest.raises(
        ValueError, match="has no zone and '2020-06-09 18:41:01Z' has one; give all times one"
    ):
        clock.seconds("2020-06-09 18:41:02")
