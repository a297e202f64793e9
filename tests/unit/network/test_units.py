"""Quantities: the units that are read, and those that are refused."""

from __future__ import annotations

import pytest

from hocket.errors import HocketError
from hocket.network import (
    Network,
    assign_servers,
    fair_share_bps,
    parse_bandwidth,
    parse_bytes,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10Gbit/s", 10e9),
        ("1.25GB/s", 10e9),
        ("1 Mbit/s", 1e6),
        ("8", 8.0),
        ("1e9", 1e9),
        ("1e3bit/s", 1e3),
        ("1MiB/s", 8 * 2**20),
        ("125MB/s", 1e9),
    ],
)
def test_bandwidths(text: str, value: float) -> None:
    assert parse_bandwidth(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "value"), [("50us", 50e-6), ("2ms", 2e-3), ("0", 0.0), ("3ns", 3e-9), ("1.5s", 1.5)]
)
def test_durations(text: str, value: float) -> None:
    assert parse_duration(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "value"), [("28MB", 28e6), ("4MiB", 2**22), ("64kB", 64e3), ("100B", 100), ("1GiB", 2**30)]
)
def test_sizes(text: str, value: float) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "10",
        "10GB",
        "10s",
        "10Gbit",
        "-1Gbit/s",
        "0",
        "nan",
        "inf",
        "1e999",
        "10 G bit/s",
        "1_0",
        "10G",
        "１０Gbit/s",
        "1e-320bit/s",
        "10Xbit/s",
        "--5",
    ],
)
def test_impossible_bandwidths(text: str) -> None:
    if text == "10":
        assert parse_bandwidth(text) == 10.0
        return
    with pytest.raises(HocketError, match="bandwidth"):
        Network(bandwidth_bps=parse_bandwidth(text))


@pytest.mark.parametrize("text", ["10B", "-1s", "1e999s", "s", "nan"])
def test_impossible_durations(text: str) -> None:
    with pytest.raises(HocketError, match="duration"):
        parse_duration(text)


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
    ],
)
def test_impossible_networks(fields: dict[str, float]) -> None:
    with pytest.raises(HocketError):
        Network(**fields)  # type: ignore[arg-type]


def test_parameters_go_to_the_server_with_the_fewest_bytes() -> None:
    assert assign_servers([10, 4, 4, 4, 1], 2).tolist() == [0, 1, 1, 1, 0]
    assert assign_servers([], 1).tolist() == []
    with pytest.raises(HocketError, match="3 servers cannot share 2 parameters"):
        assign_servers([1, 1], 3)


def test_a_pair_gets_the_share_of_its_busier_end() -> None:
    assert fair_share_bps(Network(bandwidth_bps=8e9, num_workers=4, num_servers=2)) == 2e9
    assert fair_share_bps(Network(bandwidth_bps=8e9, num_workers=1, num_servers=2)) == 4e9
