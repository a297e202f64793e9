"""The examination of a job: what its ranks have, how their self-test ended, and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hocket.doctor.findings import STOPS_TEST, Finding, findings, ranks_text
from hocket.doctor.rank_facts import RankFacts
from hocket.doctor.self_test import TOLERANCE, SelfTest
from hocket.text import digits


class RankOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one rank's self-test: what it found, or the line that it failed with.

    ``by_another``: it failed only because another rank was gone. ``clock_offset_s``: how far this rank's
    clock of the day is ahead of rank 0's.
    """

    rank: int
    test: SelfTest | None = None
    failure: str = ""
    by_another: bool = False
    clock_offset_s: float | None = None


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """A finished examination, in the order of ``hocket doctor --json``.

    ``self_test`` is rank 0's, with the largest difference of all ranks; None where it was not run or failed.
    """

    format: str = "hocket.doctor/1"
    green: bool
    workers: int
    findings: list[Finding]
    ranks: list[RankFacts]
    clock_offsets_s: list[float | None] = []
    self_test: SelfTest | None = None
    wall_s: float = 0.0


def examination(ranks: Sequence[RankFacts], outcomes: Sequence[RankOutcome], workers: int) -> Examination:
    """The examination of ``ranks`` by their facts and by how their self-test ended.

    There are no ``outcomes`` where a finding forbids the test.
    """
    found = findings(ranks)
    test = None
    if outcomes:
        found += _failures(outcomes)
        tests = [each.test for each in outcomes if each.test is not None]
        if len(tests) == len(outcomes):
            test = msgspec.structs.replace(tests[0], difference=max(t.difference for t in tests))
            found += _wrong_training(test, workers)
    return Examination(
        green=not found,
        workers=workers,
        findings=found,
        ranks=list(ranks),
        clock_offsets_s=[each.clock_offset_s for each in outcomes],
        self_test=test,
    )


def can_train(ranks: Sequence[RankFacts]) -> bool:
    """Tell whether nothing is known that keeps ``ranks`` from meeting in the self-test."""
    return STOPS_TEST.isdisjoint(each.about for each in findings(ranks))


def examination_document(found: Examination) -> dict[str, Any]:
    """The one document of ``hocket doctor --json``, as plain data; docs/formats.md tells its keys."""
    document: dict[str, Any] = msgspec.to_builtins(found)
    return document


def _failures(outcomes: Sequence[RankOutcome]) -> list[Finding]:
    """The failures that began it; those of ranks that lost another one where there are no others."""
    failed = [each for each in outcomes if each.failure]
    first = [each for each in failed if not each.by_another] or failed
    reasons: dict[str, list[int]] = {}
    for each in first:
        reasons.setdefault(each.failure, []).append(each.rank)
    return [
        Finding(about="self-test", line=f"{ranks_text(ranks)} failed in the self-test: {why}")
        for why, ranks in reasons.items()
    ]


def _wrong_training(test: SelfTest, workers: int) -> list[Finding]:
    report = "report it with what hocket doctor --json prints"
    most = TOLERANCE if workers > 2 else 0.0
    if test.difference > most:
        rule = f"at most {most:g} of the largest, by rounding" if most else "none with two ranks"
        line = (
            f"after {test.steps} steps parameters differ from DistributedDataParallel's by"
            f" {digits(test.difference)} of the largest, and should by {rule}; {report}"
        )
        return [Finding(about="self-test", line=line)]
    if workers > 1 and test.transfers < test.planned:
        line = f"{test.transfers} of {test.planned} planned transfers were seen in the self-test; {report}"
        return [Finding(about="self-test", line=line)]
    return []
