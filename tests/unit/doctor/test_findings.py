"""Rules of the doctor: what is sound has no finding, and a broken rule is one line with its fix."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.doctor.findings import Finding, findings, ranks_text
from hocket.doctor.interfaces import Interface
from hocket.doctor.rank_facts import GivenPlan
from tests.unit.doctor.facts import ETHERNET, LOOPBACK, facts


def found(**of_rank_1: Any) -> Finding:
    """The one finding of two ranks, the second of which has other facts."""
    [one] = findings([facts(0), facts(1, **of_rank_1)])
    return one


def test_sound_ranks_have_no_finding() -> None:
    assert findings([facts(0), facts(1)]) == []
    elsewhere = {"machine": "other", "host": "other"}
    assert findings([facts(0), facts(1, **elsewhere)]) == []
    named = {"environment": {"GLOO_SOCKET_IFNAME": "lo"}}
    assert findings([facts(0), facts(1, **named)]) == []


@pytest.mark.parametrize(
    ("changed", "about", "line"),
    [
        (
            {"torch": "2.10.0+cpu"},
            "torch",
            "rank 1 has torch 2.10.0+cpu, rank 0 has 2.13.0+cpu; all ranks need the same: pip install"
            " torch==2.13.0 on every machine",
        ),
        (
            {"hocket": "0.2.0"},
            "hocket",
            "rank 1 has hocket 0.2.0, rank 0 has 0.1.0; all ranks need the same: install one of them on every"
            " machine",
        ),
        (
            {"plan": GivenPlan(name="caramel", digest="0123456789ab")},
            "plan",
            "rank 1 has plan 'caramel' (digest 0123456789ab), rank 0 has 'auto' (929260ad9b9e); give every"
            " rank the same file",
        ),
        ({"plan": GivenPlan(error="p.json: gone")}, "plan", "rank 1: p.json: gone"),
        (
            {"environment": {"GLOO_SOCKET_IFNAME": "ib0"}},
            "interface",
            "rank 1: GLOO_SOCKET_IFNAME is ib0, and one has no such interface; set it to lo or eth0",
        ),
        (
            {"open_files_limit": 64},
            "open files",
            "rank 1: 64 files may be open, and connections of 2 ranks take about 136; ulimit -n 4096",
        ),
    ],
)
def test_a_rank_unlike_the_others_is_named_with_the_fix(
    changed: dict[str, Any], about: str, line: str
) -> None:
    assert found(**changed) == Finding(about=about, line=line)


@pytest.mark.parametrize(
    ("interface", "reason"),
    [
        (Interface(name="ib0", addresses=["10.1.0.5"]), "which is down; set it to lo or eth0, or ip link"),
        (Interface(name="ib0", up=True), "which has no address; set it to lo or eth0"),
    ],
)
def test_an_interface_that_gloo_cannot_use_is_told(interface: Interface, reason: str) -> None:
    environment = {"GLOO_SOCKET_IFNAME": "ib0"}
    one = found(interfaces=[LOOPBACK, ETHERNET, interface], environment=environment)
    assert reason in one.line


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        (
            {"environment": {"GLOO_SOCKET_IFNAME": "lo"}},
            "GLOO_SOCKET_IFNAME is lo, by which no other machine",
        ),
        ({"gloo_address": "127.0.1.1"}, "other resolves to 127.0.1.1, which no other machine reaches"),
        ({"gloo_address": None}, "other resolves to None, which no other machine reaches"),
    ],
)
def test_a_loopback_is_wrong_among_several_machines(changed: dict[str, Any], value: str) -> None:
    line = found(machine="other", host="other", **changed).line
    assert value in line
    assert line.endswith("set it to eth0")
    assert findings([facts(0), facts(1, **changed)]) == []


def test_shared_memory_is_shared_by_the_ranks_of_a_machine() -> None:
    small = {"shared_memory_bytes": 150_000_000, "shared_memory_free_bytes": 150_000_000}
    [one] = findings([facts(0, **small), facts(1, **small)])
    assert one.line == (
        "/dev/shm of one has 150 MB free of 150 MB, and DataLoaders of ranks 0-1 take 200 MB; docker run"
        " --shm-size=1g, or mount -o remount,size=1g /dev/shm"
    )
    assert findings([facts(0, **small), facts(1, **small, machine="other")]) == []


def test_shared_memory_that_is_full_is_to_be_cleared() -> None:
    [one] = findings([facts(0, shared_memory_free_bytes=0)])
    assert "has 0 B free of 8 GB" in one.line
    assert "remove what is left in /dev/shm" in one.line


def test_a_machine_without_shared_memory_is_told() -> None:
    [one] = findings([facts(0, shared_memory_free_bytes=None, shared_memory_bytes=None)])
    assert one.line == ("one has no /dev/shm, where DataLoaders pass batches; mount -t tmpfs tmpfs /dev/shm")


def test_ranks_are_told_in_runs() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([4, 0, 1, 2]) == "ranks 0-2 and 4"
