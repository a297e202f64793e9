"""A chain of blocks as units of it are planned: the bytes of consecutive blocks, and of the rest."""

from __future__ import annotations

import numpy as np

from hocket.network import ShardGroups
from hocket.planner.sharded.block_chain import BlockChain


class UnitChain:
    """The blocks of ``chain``, whose units' collectives cost what ``groups`` say.

    ``ahead``: the step's program runs ahead of its device, as on GPUs. ``gathered``, ``scattered`` (L + 1,):
    bytes before each block. ``leading``: bytes of a rest that is gathered before all blocks, ``kept``: of one
    that is held until the backward pass is over, ``early``: of the gradients of one that is scattered before
    all blocks' are; 0 where the rest is none such.
    """

    def __init__(self, chain: BlockChain, groups: ShardGroups, *, ahead: bool) -> None:
        self.chain, self.groups, self.ahead = chain, groups, ahead
        self.count = len(chain.gathered)
        self.gathered, self.scattered = (
            np.concatenate(([0], sizes.cumsum())) for sizes in (chain.gathered, chain.scattered)
        )
        rest = chain.rest
        self.leading = rest.gathered_bytes if rest is not None and rest.leads else 0
        self.kept = rest.gathered_bytes if rest is not None and rest.gradients != "early" else 0
        self.early = rest.scattered_bytes if rest is not None and rest.gradients == "early" else 0
