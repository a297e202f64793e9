"""Ranks that others wait for in vain: what a rank's sign says of it, and what those who wait conclude.

A rank that has no batches left may look like one that evaluates or saves, which may take as long as it
likes. It trains no more for sure where its script or its process group has ended, and where it is in a
collective of the script's that waits for a rank which waits for it.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch.distributed as dist
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import GroupName

FIX = (
    "give every rank the same number of batches (drop_last, or an even sampler), or train within"
    " 'with model.join():'"
)

_DEEP = 12  # frames between a collective's and the call that waits
_COLLECTIVES = frozenset(
    (
        "barrier", "monitored_barrier", "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "gather",
        "scatter", "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "reduce_scatter",
        "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "all_gather_object", "gather_object",
        "scatter_object_list", "broadcast_object_list",
    )
)  # fmt: skip


class ScriptCollective(msgspec.Struct, frozen=True):
    """A collective of the script's that a rank is in: its name, and its number in its group of ``ranks``."""

    name: str
    group: str
    number: int
    ranks: tuple[int, ...]


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """The last message of a rank about itself.

    ``count``: how often it has; ``steps``: how many it has trained; ``stepping``: whether it is in another
    one; ``passes``: forward passes of any kind; ``finished``: whether it has left; ``over``: what says that
    it is going to; ``inside``: the collective in which it was at two signs that follow each other.
    """

    count: int
    steps: int
    stepping: bool = False
    passes: int = 0
    finished: bool = False
    over: str = ""
    inside: ScriptCollective | None = None

    @property
    def progress(self) -> int:
        """Half steps: one more when a step begins, and when it is over."""
        return 2 * self.steps + self.stepping


def end_of_training() -> str:
    """Words that say that this process trains no more; empty: none."""
    if not threading.main_thread().is_alive():
        return "has come to the end of its script"
    return "" if dist.is_initialized() else "has ended its process group"


def collective_of(thread: int) -> ScriptCollective | None:
    """The script's collective, taken for one of the whole job, that ``thread`` of this process is in."""
    name = _collective_in(thread)
    if name is None:
        return None
    try:
        world: Any = dist.group.WORLD
        number = world._get_sequence_number_for_group()
        return ScriptCollective(name, world.group_name, number, tuple(dist.get_process_group_ranks(world)))
    except Exception:  # it may be over, and the group gone
        return None


def _collective_in(thread: int) -> str | None:
    """The outermost collective among the innermost frames of ``thread``.

    Of frames only the code is looked at: values of one that goes on are changing. :mod:`faulthandler` is no
    way: it crashes where a thread that is not Python's own, as gloo has, takes the interpreter's lock.
    """
    if gc.isenabled():
        # Frames are made under a lock that whatever starts a thread needs, as a finalizer may: none is to run
        # there.
        gc.collect(0)
    frame, outermost = sys._current_frames().get(thread), None
    for _ in range(_DEEP):
        if frame is None:
            break
        code = frame.f_code
        if code.co_name in _COLLECTIVES and code.co_filename == distributed_c10d.__file__:
            outermost = code.co_name
        frame = frame.f_back
    return outermost


def lost_for_good(signs: Mapping[int, Sign], needed: int) -> tuple[int, str] | None:
    """Of the other ranks' ``signs``, by rank, who never comes to ``needed`` half steps, and what says so."""
    for rank, sign in signs.items():
        if sign.progress >= needed:
            continue
        if sign.finished:
            return rank, "is done"
        if sign.over:
            return rank, sign.over
        if sign.inside is not None and _waits_for_us(sign.inside):
            return rank, f"is in torch.distributed.{sign.inside.name}(), which waits for others, and done"
    return None


def _waits_for_us(collective: ScriptCollective) -> bool:
    """Tell whether this rank is missing in ``collective`` while it waits for ranks that are in it."""
    try:
        group: Any = _resolve_process_group(GroupName(collective.group))
        same = tuple(dist.get_process_group_ranks(group)) == collective.ranks
        return same and group._get_sequence_number_for_group() < collective.number
    except Exception:  # it is no group of ours
        return False


class IdleTimes:
    """Since when each of the other ranks has been seen to call its model no more."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[int, int, float]] = {}

    def forget(self) -> None:
        """Forget what was seen: it is over."""
        self._since.clear()

    def longer_than(self, seconds: float, signs: Mapping[int, Sign], now_s: float) -> list[int]:
        """The ranks of ``signs`` that have been idle for so long by now."""
        found = []
        for rank, sign in signs.items():
            passes, steps, since_s = self._since.get(rank, (-1, -1, now_s))
            if (passes, steps) != (sign.passes, sign.steps):
                self._since[rank] = sign.passes, sign.steps, now_s
            elif now_s - since_s >= seconds:
                found.append(rank)
        return found


def ranks_text(ranks: Sequence[int], one: str, many: str) -> str:
    """Ranks of the job with the verb for one or several."""
    shown = ", ".join(map(str, ranks))
    return f"rank {shown} {one}" if len(ranks) == 1 else f"ranks {shown} {many}"
