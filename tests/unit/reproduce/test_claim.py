"""The rules that make verdicts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hocket.reproduce.claim import Claim, Share, judged, share


def claim(**options: Any) -> Claim[float]:
    given: dict[str, Any] = {
        "figure": "Fig. 1",
        "what": "something",
        "ours": lambda found: found,
        "paper": 2.0,
    }
    return Claim(**(given | options))


def verdict(found: Any, **options: Any) -> str:
    return judged(claim(**options), found).verdict


@pytest.mark.parametrize(
    ("found", "expected"),
    [(2.0, "reproduced"), (2.2, "reproduced"), (1.8, "reproduced"), (2.21, "not reproduced")],
)
def test_a_level_is_reproduced_within_its_tolerance(found: float, expected: str) -> None:
    assert verdict(found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (2.05, "reproduced"),
        (1.2, "same direction"),
        (1.05, "not reproduced"),
        (0.9, "not reproduced"),
    ],
)
def test_a_ratio_has_a_direction(found: float, expected: str) -> None:
    assert verdict(found, neutral=1) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [(-0.5, "same direction"), (-0.21, "reproduced"), (0.01, "not reproduced"), (0.0, "not reproduced")],
)
def test_so_has_a_saving(found: float, expected: str) -> None:
    assert verdict(found, paper=-0.2, neutral=0, unit="%") == expected


def test_limits_are_met_or_not() -> None:
    assert verdict(2.0, rule="at most") == "reproduced"
    assert verdict(2.01, rule="at most") == "not reproduced"
    assert verdict(2.0, rule="at least") == "reproduced"
    assert verdict(1.99, rule="at least") == "not reproduced"


@pytest.mark.parametrize(
    ("cases", "expected"),
    [([True, True], "reproduced"), ([True, False], "in part"), ([False, False], "not reproduced")],
)
def test_words_are_counted(cases: list[bool], expected: str) -> None:
    row = judged(claim(paper=None, ours=lambda _: share(cases)), 0.0)
    assert row.verdict == expected
    assert (row.held, row.cases) == (sum(cases), 2)
    assert (row.rule, row.paper_text, row.ours_text) == ("in words", "in words", f"in {sum(cases)} of 2")


@pytest.mark.parametrize("found", [None, Share(0, 0)])
def test_what_nobody_could_find_is_not_here(found: Share | None) -> None:
    row = judged(claim(paper=None, ours=lambda _: found, why="no cluster"), 0.0)
    assert (row.verdict, row.ours_text, row.ratio_text, row.why) == ("not here", "–", "–", "no cluster")


def test_what_is_infinite_or_undefined_is_no_reproduction() -> None:
    assert verdict(math.inf, rule="at least") == "not reproduced"
    assert verdict(math.nan, neutral=1) == "not reproduced"


def test_reasons_stand_beside_what_did_not_come_out_alone() -> None:
    assert judged(claim(why="because"), 2.0).why == ""
    assert judged(claim(why="because"), 3.0).why == "because"


def test_ours_is_shown_in_the_claims_unit() -> None:
    row = judged(claim(paper=0.377, unit="%", neutral=0), 0.66)
    assert (row.paper_text, row.ours_text, row.ratio_text) == ("37.7%", "66.0%", "1.75")
    assert judged(claim(paper=3.62, unit="x"), 1.5).ours_text == "1.50x"
    assert judged(claim(tolerance=0.25), 2.4).paper_text == "2 (± 25%)"
    assert judged(claim(paper=117.0, unit="s", rule="at most"), 8.25).paper_text == "≤ 117 s"
    assert judged(claim(paper=0.7, unit="%", rule="at least"), 0.97).paper_text == "≥ 70.0%"
