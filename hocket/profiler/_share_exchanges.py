"""Collectives of fully sharded training that ranks are timed at: they gather, scatter or exchange shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist

ShareKind = Literal["gather", "scatter", "exchange"]
SHARE_KINDS: tuple[ShareKind, ...] = get_args(ShareKind)
AT_ONCE: dict[ShareKind, int] = {"gather": 1, "scatter": 1, "exchange": 2}
"""Collectives of a sample at once: as sharded training has them, exchanges two at a time."""


class ShareBuffers:
    """Tensors to gather, scatter and exchange, up to ``largest_bytes`` of all ranks' shares together."""

    def __init__(self, largest_bytes: int, device: torch.device) -> None:
        numbers = self._share(largest_bytes) * dist.get_world_size()
        # Zeros stay zeros however often they are summed.
        self._whole = torch.zeros(numbers, device=device)
        self._received = [torch.zeros(numbers, device=device) for _ in range(max(AT_ONCE.values()))]

    def size_bytes(self, asked_bytes: int) -> int:
        """Bytes of all shares together, which are alike, where about so many are asked for."""
        return 4 * self._share(asked_bytes) * dist.get_world_size()

    def collective(self, kind: ShareKind, asked_bytes: int) -> Callable[[], None]:
        """A function that runs as many collectives at once as :data:`AT_ONCE` has, and waits for them."""
        share = self._share(asked_bytes)
        whole = self._whole[: share * dist.get_world_size()]
        received = self._received[0][: len(whole)]
        if kind == "gather":
            # Before torch 2.13 they had other names.
            gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
            return lambda: gather(whole, received[:share])
        if kind == "scatter":
            scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
            return lambda: scatter(received[:share], whole)

        def exchange() -> None:
            under_way = [
                dist.all_to_all_single(each[: len(whole)], whole, async_op=True) for each in self._received
            ]
            for work in under_way:
                work.wait()

        return exchange

    @staticmethod
    def _share(size_bytes: int) -> int:
        return max(1, size_bytes // 4 // dist.get_world_size())
