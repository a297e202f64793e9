"""Variants of sharded training timed side by side: torch's own, set by hand, and hocket's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim import Optimizer

import hocket
from hocket.bench.training.variants import Copy
from hocket.graph import Plan
from hocket.profiler import StepSetup
from hocket.runtime.sharding.module_tree import blocks_of
from hocket.runtime.sharding.optimizers import take_over
from hocket.runtime.sharding.sharded_handle import ShardedHandle

AHEAD = 2


class PlainCopy(Copy):
    """A copy under plain FSDP2, a unit a block; ``ahead``: prefetch lists of two, set by hand.

    ``asynchronous``: with torch's switch for all-gathers that the program waits for later; it has no public
    name.
    """

    def __init__(self, setup: StepSetup, *, ahead: bool = False, asynchronous: bool = False) -> None:
        super().__init__(setup)
        names = {p: name for name, p in self.model.named_parameters()}
        blocks: Sequence[Any] = blocks_of(self.model)
        for block in blocks:
            fully_shard(block)
        fully_shard(self.model)
        self.optimizer = take_over(self.optimizer, self.model, names)
        if ahead:
            set_ahead([self.model, *blocks])
        if asynchronous:
            root: Any = self.model
            root._set_unshard_async_op(True)


def set_ahead(units: Sequence[Any]) -> None:
    """Have each unit list the two behind it in the forward pass, and the two before it in the backward."""
    for k, unit in enumerate(units):
        assert isinstance(unit, FSDPModule)
        unit.set_modules_to_forward_prefetch(list(units[k + 1 : k + 1 + AHEAD]))
        unit.set_modules_to_backward_prefetch(list(reversed(units[max(0, k - AHEAD) : k])) or [unit])


class ShardedCopy(Copy):
    """A copy under ``plan`` by ``hocket.shard``; ``handle`` is its own."""

    def __init__(self, setup: StepSetup, plan: str | Plan) -> None:
        super().__init__(setup)
        model: nn.Module
        optimizer: Optimizer
        model, optimizer = hocket.shard(self.model, self.optimizer, plan=plan)
        self.model, self.optimizer = model, optimizer
        handle = model.hocket
        assert isinstance(handle, ShardedHandle)
        self.handle = handle
