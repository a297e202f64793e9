"""Quantities in sentences: three digits, and a unit in which they can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.text import (
    capitalized,
    caution_lines,
    counted,
    digits,
    duration_text,
    listed,
    percent_text,
    rate_scale,
    rate_text,
    rho_text,
    scaled_text,
    time_unit,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (3e-10, "0.3 ns"),
        (5e-5, "50 µs"),
        (0.0269, "26.9 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1.2244, "1.22 s"),
        (90.0, "90 s"),
        (600.0, "10 min"),
        (3 * 3600, "3 h"),
        (47 * 3600, "47 h"),
        (27131968, "314 days"),
        (4e9, "46296 days"),
    ],
)
def test_durations_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_two_durations_that_are_read_together_share_a_unit() -> None:
    unit = time_unit([0.953, 1.22])
    assert [duration_text(seconds, unit) for seconds in (0.953, 1.22)] == ["0.953 s", "1.22 s"]
    assert time_unit([]).symbol == "s"


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (1.0, "1 bit/s"),
        (1e3, "1 kbit/s"),
        (2.5e8, "250 Mbit/s"),
        (9.379e9, "9.38 Gbit/s"),
        (1.6e12, "1.6 Tbit/s"),
    ],
)
def test_bandwidths_have_a_scaled_unit(bits: float, text: str) -> None:
    assert scaled_text(bits, "bit/s") == text


def test_sizes_rates_and_shares() -> None:
    assert tuple(scaled_text(size, "B") for size in (28e6, 999.9, 0)) == ("28 MB", "1 kB", "0 B")
    assert rate_text(3298.4) == "3298 examples/s"
    assert (rate_text(9994.0), rate_text(29_640.0)) == ("9994 examples/s", "29.6 k examples/s")
    assert (rate_text(9.995e5), rate_text(1.314e6)) == ("1 M examples/s", "1.31 M examples/s")
    assert rate_text(0.4706) == "0.471 examples/s"
    assert rate_text(1 / 3600) == "1 examples/h"
    assert (rate_text(3.7e-8), rate_text(0.0)) == ("0.0032 examples/day", "0 examples/s")
    assert [percent_text(share) for share in (0.2214, 0.0962, 0.0123, 0.003)] == [
        "22%",
        "9.6%",
        "1.2%",
        "0.3%",
    ]
    assert (percent_text(0.0999), percent_text(12.5)) == ("10%", "1250%")


def test_rates_of_one_column_share_a_scale_in_which_the_smallest_still_has_digits() -> None:
    assert rate_scale([4_630.0, 2.365e6]) == ("k", 1e3)
    assert rate_scale([463_000.0, 2.365e6]) == ("M", 1e6)
    assert rate_scale([4.6, 46_000.0]) == rate_scale([0.0]) == rate_scale([]) == ("", 1.0)


def test_lists_counts_and_capitals_read_as_sentences() -> None:
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert (counted(1, "push", "pushes"), counted(2, "push", "pushes"), counted(2, "pull")) == (
        *("1 push", "2 pushes", "2 pulls"),
    )
    assert (capitalized("all-reduce at"), capitalized("")) == ("All-reduce at", "")


@given(st.floats(1e-9, 1e9))
def test_a_duration_keeps_three_digits_and_no_more_than_a_reader_takes_in(seconds: float) -> None:
    number, symbol = duration_text(seconds).split()
    (unit,) = {time_unit([seconds])}
    assert symbol == unit.symbol
    assert float(number) / unit.per_second == pytest.approx(seconds, rel=6e-3)
    assert "e" not in number
    assert 0.99 <= float(number) <= 1000 or symbol in ("days", "ns")


@given(st.floats(1e-4, 1e7))
def test_digits_round_at_the_third(value: float) -> None:
    assert float(digits(value)) == pytest.approx(value, rel=6e-3)


def test_each_part_of_a_caveat_is_a_line() -> None:
    assert caution_lines("") == []
    assert caution_lines("too long; too few") == ["Caution: too long", "Caution: too few"]
    assert caution_lines("too long", ["l4", "a10"]) == ["Caution for l4 and a10: too long"]


@pytest.mark.parametrize(
    ("rho", "text"), [(0.0, "under 0.01"), (0.414, "0.41"), (24.4, "24"), (1234.0, "1234")]
)
def test_a_ratio_has_two_digits(rho: float, text: str) -> None:
    assert rho_text(rho) == text
