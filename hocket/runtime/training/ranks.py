"""Ranks that train together by all-reduce, and the values that they take over from the first of them."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import NamedTuple

import torch.distributed as dist

from hocket.errors import HocketError


class TrainingRanks(NamedTuple):
    """The ranks that train members.

    Attributes
    ----------
    process_group : the group that they are; None: all of the default one.
    timeout_s : seconds that no wait of one for the others takes longer than.
    """

    process_group: dist.ProcessGroup | None = None
    timeout_s: float = 1800.0

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The process group that they are."""
        return self.process_group or dist.group.WORLD

    @property
    def numbers(self) -> list[int]:
        """The ranks in the default process group."""
        return dist.get_process_group_ranks(self.group)

    @property
    def timeout(self) -> timedelta:
        """The longest wait."""
        return timedelta(seconds=self.timeout_s)

    def on_one_machine(self) -> bool:
        """Tell whether all are on one machine, by what torchrun says of it; no where it says nothing."""
        local = os.environ.get("LOCAL_WORLD_SIZE")
        return local is not None and local == os.environ.get("WORLD_SIZE")

    def check(self) -> None:
        """Refuse a rank that has no process group, or is not in it; raises HocketError."""
        if not dist.is_available() or not dist.is_initialized():
            raise HocketError("there is no process group; call torch.distributed.init_process_group first")
        if self.process_group is not None and not isinstance(self.process_group, dist.ProcessGroup):
            # torch.distributed.new_group returns a number there.
            raise HocketError(
                "this rank is not in process_group; call hocket.distribute on the ranks in it only"
            )


class RankZeroValues(NamedTuple):
    """The values of rank 0 that the others take over.

    Attributes
    ----------
    parameters : they take over parameters before the first step; else they have the same already.
    buffers : and buffers with them.
    buffers_in_forward : they take over buffers in each forward pass that trains.
    """

    parameters: bool = True
    buffers: bool = True
    buffers_in_forward: bool = True
