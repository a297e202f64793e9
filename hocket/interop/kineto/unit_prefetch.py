"""The prefetch lists of a step that FSDP2 sharded, unit by unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hocket.interop.kineto.traced_operations import TracedStep
from hocket.interop.kineto.unit_marks import PRE_BACKWARD, PRE_FORWARD, prefetch_mark, unit_mark

Lists = tuple[tuple[int, ...], ...]


def prefetch_lists(
    step: TracedStep, units: Sequence[str], which: Literal["forward", "backward"]
) -> Lists | None:
    """For each of ``units`` the places of those that it gathers ahead; None where that is left to torch.

    torch's own way shows within the hook that runs before a unit's backward pass, and a list behind it.
    """
    place = {unit: k for k, unit in enumerate(units)}
    found: list[list[int]] = [[] for _ in units]
    begins, at, listed = PRE_FORWARD if which == "forward" else PRE_BACKWARD, -1, False
    for event in step.host:
        mark = unit_mark(event)
        if mark is not None and mark[0] == begins:
            at = place.get(mark[1], -1)
        ahead = prefetch_mark(event)
        if ahead is None or ahead[0] != which or at < 0:
            continue
        listed = listed or all((unit_mark(around) or ("",))[0] != PRE_BACKWARD for around in event.chain())
        target = place.get(ahead[1], at)
        runs_later = target > at if which == "forward" else target < at
        if runs_later and target not in found[at]:
            found[at].append(target)
    return tuple(map(tuple, found)) if listed else None
