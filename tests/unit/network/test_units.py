"""Quantities: the units that are read, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hocket.errors import HocketError
from hocket.network import (
    MeasuredReduction,
    Network,
    assign_servers,
    fair_share_bps,
    parse_bandwidth,
    parse_bytes,
    parse_duration,
    parse_seconds_per_byte,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10Gbit/s", 10e9),
        ("1.25GB/s", 10e9),
        ("1 Mbit/s", 1e6),
        ("1e3bit/s", 1e3),
        ("10 Gbit/s", 10e9),
        ("10Gbps", 10e9),
        ("10 Gbps", 10e9),
        ("10Gb/s", 10e9),
        ("10GB/s", 80e9),
        ("100MBps", 8e8),
        ("1Tbit/s", 1e12),
        ("1Tbps", 1e12),
        ("1TiB/s", 8 * 2**40),
        ("10Gib/s", 10 * 2**30),
        ("500Kbps", 5e5),
        ("500kb/s", 5e5),
        # As tc and iperf write them: bit is spelled out, so that no letter's case tells bits from bytes.
        ("1gbit", 1e9),
        ("10gbit/s", 10e9),
        ("250mbit", 250e6),
        ("250mbit/s", 250e6),
        ("2.5GBIT", 2.5e9),
        ("500000kbit", 5e8),
        ("1000000bit", 1e6),
        ("9.41 Gbits/sec", 9.41e9),
        ("1MiB/s", 8 * 2**20),
        ("125MB/s", 1e9),
    ],
)
def test_bandwidths_are_read(text: str, value: float) -> None:
    assert parse_bandwidth(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("50us", 50e-6),
        ("2ms", 2e-3),
        ("0", 0.0),
        ("3ns", 3e-9),
        ("1.5s", 1.5),
        ("50 us", 50e-6),
        ("50µs", 5e-5),
    ],
)
def test_durations_are_read(text: str, value: float) -> None:
    assert parse_duration(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("28MB", 28e6),
        ("4MiB", 2**22),
        ("64kB", 64e3),
        ("100B", 100),
        ("1GiB", 2**30),
        ("16 GB", 16e9),
        ("1TB", 1e12),
    ],
)
def test_sizes_are_read(text: str, value: float) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-10", 1e-10), ("0.1ns", 1e-10), ("0.1 ns/B", 1e-10), ("1e-10s/B", 1e-10), ("0", 0.0)],
)
def test_seconds_per_byte_need_no_unit(text: str, value: float) -> None:
    assert parse_seconds_per_byte(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        *("", "fast", "10GB", "10s", "-1Gbit/s", "0", "nan", "inf", "1e999", "10 G bit/s", "1_0bit/s"),
        *("１０Gbit/s", "10Xbit/s", "--5", "10nbit/s", "10uB/s", "1,000Mbit/s"),
        *("1e-320bit/s", "0.5bit/s", "1e300bit/s", "1e18B/s"),
    ],
)
def test_impossible_bandwidths_are_refused(text: str) -> None:
    with pytest.raises(HocketError, match=r"bandwidth '.*'.*; write"):
        parse_bandwidth(text)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("10", "bandwidth '10' has no unit; write 10Gbit/s or 10GB/s"),
        ("1e9", "has no unit; write 1e9bit/s or 1e9B/s"),
        ("100M", "bandwidth '100M' has no unit; write 100Mbit/s or 100MB/s"),
        ("10gb/s", "leaves open whether it is in bits or in bytes; write 10Gbit/s or 10GB/s"),
        ("10gbps", "leaves open whether it is in bits or in bytes; write 10Gbit/s or 10GB/s"),
        ("100 MBPS", "leaves open whether it is in bits or in bytes; write 100Mbit/s or 100MB/s"),
        ("100mB/s", "leaves open whether it is in bits or in bytes; write 100Mbit/s or 100MB/s"),
    ],
)
def test_a_bandwidth_that_two_people_read_differently_is_refused_with_what_to_write(
    text: str, fix: str
) -> None:
    with pytest.raises(HocketError) as refused:
        parse_bandwidth(text)
    assert str(refused.value).endswith(fix)


@pytest.mark.parametrize("text", ["10B", "-1s", "1e999s", "s", "nan", "1e-320s", "1e300s", "50Gbit/s"])
def test_impossible_durations_are_refused(text: str) -> None:
    with pytest.raises(HocketError, match=f"duration '{text}' .*; write it like 50us"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("50", "duration '50' has no unit; write 50s, 50ms or 50us"),
        ("50m", "duration '50m' has no unit; write 50ms"),
        ("1.0", "write 1.0s, 1.0ms or 1.0us"),
    ],
)
def test_a_duration_without_a_unit_is_refused_with_what_to_write(text: str, fix: str) -> None:
    with pytest.raises(HocketError) as refused:
        parse_duration(text)
    assert str(refused.value).endswith(fix)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("28", "has no unit; write 28B, 28MB or 28MiB"),
        ("64M", "has no unit; write 64MB"),
        ("28Mb", "is in bits; sizes are in bytes"),
        ("28mb", "is in bits; sizes are in bytes"),
        ("28mB", "has the prefix 'm', which makes a unit smaller"),
        ("28MB/s", "has the unit of something else"),
        ("1e300B", "not 0 nor between 1 and"),
        ("9.3e18B", "not 0 nor between 1 and"),
        ("9223372036854775808B", "not 0 nor between 1 and"),
        ("1e-320B", "not 0 nor between 1 and"),
        ("-1B", "is negative"),
    ],
)
def test_impossible_sizes_are_refused(text: str, rule: str) -> None:
    with pytest.raises(HocketError) as refused:
        parse_bytes(text)
    assert str(refused.value).startswith(f"size '{text}' ")
    assert rule in str(refused.value)


@pytest.mark.parametrize("text", ["2", "5s", "1e-320", "1e300", "-1e-10", "nan", "10MB"])
def test_impossible_seconds_per_byte(text: str) -> None:
    with pytest.raises(HocketError, match=r"seconds per byte, 0 or from 1e-18 to 1; give e\.g\. 1e-10"):
        parse_seconds_per_byte(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("parse", [parse_bandwidth, parse_duration, parse_bytes, parse_seconds_per_byte])
@pytest.mark.parametrize(
    "unit", ["1" * 10**6, "." * 10**6, " " * 10**6 + "x", "k" * 10**6, "1e" + "9" * 10**6]
)
def test_a_long_text_is_read_once(parse: Callable[[str], float], unit: str) -> None:
    """A pattern that may split the digits in two ways would try each of the million: hours."""
    with pytest.raises(HocketError) as refused:
        parse(f"1{unit}!")
    assert len(str(refused.value)) <= 1100


@pytest.mark.parametrize(
    "fields",
    [
        {"bandwidth_bps": 0.0},
        {"bandwidth_bps": float("nan")},
        {"startup_s": -1.0},
        {"startup_s": float("inf")},
        {"num_workers": 0},
        {"num_workers": 1.5},
        {"num_servers": True},
        {"bandwidth_bps": "10Gbit/s"},
        {"num_servers": 0},
        {"window_bytes": -1.0},
        {"window_bytes": float("nan")},
        {"window_bytes": "28MB"},
        {"window_bytes": 1e-320},
        {"window_bytes": 2.0**63},
        {"bandwidth_bps": 0.5},
        {"bandwidth_bps": 1e300},
        {"startup_s": 1e-320},
        {"startup_s": 86400.0},
        {"parse_s": 1e6},
        {"parse_s_per_byte": 1e-320},
        {"parse_s_per_byte": 1e9},
    ],
)
def test_impossible_networks_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(HocketError):
        Network(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{"a_s": 1e-320}, {"a_s": 86400.0}, {"b_s_per_byte": 1e9}, {"workers": 1}])
def test_impossible_measurements_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(HocketError, match="all-reduce"):
        MeasuredReduction(**{"workers": 2, "a_s": 1e-4, "b_s_per_byte": 1e-9, **fields})  # type: ignore[arg-type]


def test_parameters_go_to_the_server_with_the_fewest_bytes() -> None:
    assert assign_servers([10, 4, 4, 4, 1], 2).tolist() == [0, 1, 1, 1, 0]
    assert assign_servers([], 1).tolist() == []
    with pytest.raises(HocketError, match="3 servers cannot share 2 parameters"):
        assign_servers([1, 1], 3)


def test_a_pair_gets_the_share_of_its_busier_end() -> None:
    assert fair_share_bps(Network(bandwidth_bps=8e9, num_workers=4, num_servers=2)) == 2e9
    assert fair_share_bps(Network(bandwidth_bps=8e9, num_workers=1, num_servers=2)) == 4e9
