"""Verdicts of an examination: green by what ranks have and by how their self-test ended."""

from __future__ import annotations

from typing import Any

import msgspec

from hocket.doctor.examination import Examination, RankOutcome, can_train, examination
from hocket.doctor.self_test import SelfTest
from tests.unit.doctor.facts import facts

TEST = SelfTest(
    steps=12,
    size_bytes=5_300_264,
    difference=0.0,
    transfers=8,
    planned=8,
    peak_bytes=24_500_000,
    ddp_peak_bytes=23_100_000,
    open_files=22,
    wall_s=3.0,
)


def examined(workers: int = 2, **of_last: Any) -> Examination:
    """The examination of sound ranks, the last of which ended its test in another way."""
    ends = [RankOutcome(rank=rank, test=TEST, clock_offset_s=0.0) for rank in range(workers)]
    ends[-1] = msgspec.structs.replace(ends[-1], **of_last)
    return examination([facts(rank) for rank in range(workers)], ends, workers)


def test_ranks_that_train_as_ddp_are_green() -> None:
    found = examined()
    assert found.green
    assert found.findings == []
    assert found.self_test == TEST


def test_two_ranks_that_differ_in_a_bit_are_red() -> None:
    found = examined(test=msgspec.structs.replace(TEST, difference=1e-9))
    assert not found.green
    assert "differ from DistributedDataParallel's by 1e-09 of the largest" in found.findings[0].line
    assert "none with two ranks" in found.findings[0].line


def test_more_ranks_may_differ_by_rounding() -> None:
    assert examined(3, test=msgspec.structs.replace(TEST, difference=1e-7)).green
    assert not examined(3, test=msgspec.structs.replace(TEST, difference=1e-3)).green


def test_transfers_that_were_not_seen_are_told() -> None:
    ends = [
        RankOutcome(rank=0, test=msgspec.structs.replace(TEST, transfers=5)),
        RankOutcome(rank=1, test=TEST),
    ]
    [finding] = examination([facts(0), facts(1)], ends, 2).findings
    assert finding.line.startswith("5 of 8 planned transfers were seen")


def test_the_rank_that_failed_first_is_named() -> None:
    lost = {"test": None, "failure": "Connection closed by peer", "by_another": True}
    ends = [RankOutcome(rank=0, **lost), RankOutcome(rank=1, failure="out of memory")]
    found = examination([facts(0), facts(1)], ends, 2)
    assert [each.line for each in found.findings] == ["rank 1 failed in the self-test: out of memory"]
    assert found.self_test is None
    ends = [RankOutcome(rank=rank, **lost) for rank in range(2)]
    [finding] = examination([facts(0), facts(1)], ends, 2).findings
    assert finding.line == "ranks 0-1 failed in the self-test: Connection closed by peer"


def test_ranks_of_other_versions_are_not_trained() -> None:
    assert can_train([facts(0), facts(1)])
    assert can_train([facts(0, shared_memory_free_bytes=0)])
    assert not can_train([facts(0), facts(1, torch="2.10.0")])
