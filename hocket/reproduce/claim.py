"""A claim of a paper, what we found in its place, and the rule that makes a verdict of the two.

The papers' numbers are data of claims; ours are computed from what a run measured. Rules:

    near                 within ``tolerance`` of the paper's number: reproduced; else on the same side of
                         ``neutral`` with a tenth of the paper's effect or more: same direction; else not
                         reproduced
    at least, at most    the paper's number met: reproduced; else not reproduced
    said in words        a statement without a number, counted over all cases that it speaks of: in all of
                         them: reproduced; in some: in part; in none: not reproduced

A claim that needs hardware that is not here gets no other verdict than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import msgspec

from hocket.text import four_digits

M = TypeVar("M")

Rule = Literal["near", "at least", "at most", "in words"]
Unit = Literal["", "x", "%", "s"]
Verdict = Literal["reproduced", "same direction", "in part", "not reproduced", "not here"]

TOLERANCE = 0.1
"""Of the paper's number, where a claim names no other."""
LEAST_EFFECT = 0.1
"""Of the paper's effect: what is less has no direction."""

VERDICTS: tuple[Verdict, ...] = ("reproduced", "same direction", "in part", "not reproduced", "not here")


class Share(NamedTuple):
    """In how many of the cases that a statement speaks of it holds."""

    held: int
    of: int


def share(cases: Sequence[bool]) -> Share:
    """In how many of ``cases`` it holds."""
    return Share(sum(bool(case) for case in cases), len(cases))


@dataclass(frozen=True, kw_only=True)
class Claim(Generic[M]):
    """One claim; ``M`` is what its paper's measurement returns.

    Attributes
    ----------
    figure, what : where the paper says it, and what it is about.
    paper : its number, shares and percentages as fractions; None where it is said in words.
    ours : computes our number, or counts where the words hold; None where that needs what is not here.
    rule, tolerance, neutral : of the verdict. ``neutral`` parts directions: 0 for a gain, 1 for a ratio; None
        for a level, which has none.
    why : the reason why it does not come out, as far as known; shown unless it is reproduced.
    """

    figure: str
    what: str
    ours: Callable[[M], float | Share | None]
    paper: float | None = None
    unit: Unit = ""
    rule: Rule = "near"
    tolerance: float = TOLERANCE
    neutral: float | None = None
    why: str = ""


class ClaimRow(msgspec.Struct, frozen=True, kw_only=True):
    """A claim beside ours: a row of a reproduction's table.

    ``held`` of ``cases``: where a statement holds, None for numbers. ``ratio``: ours over the paper's.
    """

    figure: str
    what: str
    unit: Unit
    rule: Rule
    tolerance: float
    paper: float | None
    ours: float | None
    held: int | None = None
    cases: int | None = None
    ratio: float | None
    verdict: Verdict
    why: str

    @property
    def paper_text(self) -> str:
        """The paper's value, as it is shown."""
        if self.paper is None:
            return "in words"
        prefix = {"at least": "≥ ", "at most": "≤ "}.get(self.rule, "")
        within = f" (± {self.tolerance:.0%})" if self.rule == "near" and self.tolerance != TOLERANCE else ""
        return prefix + _text(self.paper, self.unit) + within

    @property
    def ours_text(self) -> str:
        """Our value, as it is shown."""
        if self.held is not None:
            return f"in {self.held} of {self.cases}"
        return "–" if self.ours is None else _text(self.ours, self.unit)

    @property
    def ratio_text(self) -> str:
        """Ours over the paper's, as it is shown."""
        return "–" if self.ratio is None else f"{self.ratio:.2f}"


def judged(claim: Claim[M], measured: M) -> ClaimRow:
    """Compute ours from ``measured`` and judge it by the claim's rule."""
    found = claim.ours(measured)
    if isinstance(found, Share) and not found.of:
        found = None
    verdict = verdict_of(claim, found)
    ours = None if found is None or isinstance(found, Share) else float(found)
    return ClaimRow(
        figure=claim.figure,
        what=claim.what,
        unit=claim.unit,
        rule=claim.rule if claim.paper is not None else "in words",
        tolerance=claim.tolerance,
        paper=claim.paper,
        ours=ours,
        held=found.held if isinstance(found, Share) else None,
        cases=found.of if isinstance(found, Share) else None,
        ratio=ours / claim.paper if ours is not None and claim.paper else None,
        verdict=verdict,
        why="" if verdict == "reproduced" else claim.why,
    )


def verdict_of(claim: Claim[M], found: float | Share | None) -> Verdict:
    """The verdict on ``found`` by the claim's rule, as this module's docstring states it."""
    if found is None:
        return "not here"
    if isinstance(found, Share):
        assert claim.paper is None, "what is counted is compared with words"
        return "reproduced" if found.held == found.of else "in part" if found.held else "not reproduced"
    assert claim.paper is not None, "a number is compared with a number"
    if not math.isfinite(found):
        return "not reproduced"
    if claim.rule == "at least":
        return "reproduced" if found >= claim.paper else "not reproduced"
    if claim.rule == "at most":
        return "reproduced" if found <= claim.paper else "not reproduced"
    if abs(found - claim.paper) <= claim.tolerance * abs(claim.paper) * (1 + 1e-9):  # rounding aside
        return "reproduced"
    if claim.neutral is None:
        return "not reproduced"
    effect = (found - claim.neutral) / (claim.paper - claim.neutral)
    return "same direction" if effect >= LEAST_EFFECT else "not reproduced"


def _text(value: float, unit: Unit) -> str:
    if unit == "%":
        return f"{100 * value:.1f}%"
    if unit == "x":
        return f"{value:.2f}x"
    return four_digits(value) + (" s" if unit == "s" else "")
