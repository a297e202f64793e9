"""Ids as tables show them: long ones cut in the middle, so that they can still be told apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

MOST = 32
"""The characters of an id up to which it is shown in full."""
_HEAD = 18
_END, _BETWEEN = 4, 20  # of ids that differ in what a cut leaves out
_CUT = "\N{HORIZONTAL ELLIPSIS}"


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Each id of more than MOST characters, and what is shown of it; no two of ``ids`` are shown alike.

    Ids that are alike at both ends are shown by what they differ in, and in full where that is long.
    """
    different = dict.fromkeys(ids)
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for each in different:
        alike[_without_middle(each)].append(each)
    shown = {each: cut for cut, group in alike.items() for each in group}
    for group in alike.values():
        if len(group) > 1:
            shown |= _by_difference(group)
    times = Counter(shown.values())
    return {each: each if times[cut] > 1 else cut for each, cut in shown.items() if len(each) > MOST}


def _without_middle(text: str) -> str:
    if len(text) <= MOST:
        return text
    return f"{text[:_HEAD]}{_CUT}{text[_HEAD + 1 - MOST :]}"


def _by_difference(group: list[str]) -> dict[str, str]:
    """Ids that begin and end alike, each by both ends and what is its own between them."""
    begin = _common_length(group)
    end = _common_length([each[: begin - 1 : -1] for each in group])
    own = {each: each[begin : len(each) - end] for each in group}
    if max(map(len, own.values())) > _BETWEEN:
        return {each: each for each in group}
    return {each: f"{each[:_END]}{_CUT}{between}{_CUT}{each[-_END:]}" for each, between in own.items()}


def _common_length(texts: list[str]) -> int:
    """The number of characters that all of ``texts`` begin with."""
    first, last = min(texts), max(texts)  # what these two share, all between them do
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (one, other) in pairs if one != other), len(first))
