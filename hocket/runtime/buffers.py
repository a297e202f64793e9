"""Buffers, such as BatchNorm's statistics: rank 0's hold everywhere, as in DistributedDataParallel.

DDP broadcasts them when a forward pass begins and waits. Here rank 0's leave when its forward pass has ended and
are put in place when the next one begins, by when they have long arrived.
"""

from __future__ import annotations

import torch
import torch.distributed as dist


class StateBuffers:
    """The buffers of ``model`` on ``group``; ``source``: the group rank whose buffers hold."""

    def __init__(self, model: torch.nn.Module, group: dist.ProcessGroup, source: int = 0) -> None:
        self._group = group
        self._source = source
        self._places = [
            (module, name)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and buffer.numel()
        ]
        self._travelling: list[tuple[dist.Work, torch.Tensor, list[tuple[torch.nn.Module, str]]]] = []

    def send(self) -> None:
        """Start sending rank 0's; nothing happens where there are none or they are on their way."""
        if self._travelling:
            return
        kinds: dict[tuple[torch.dtype, torch.device], list[tuple[torch.nn.Module, str]]] = {}
        for module, name in self._places:
            buffer = module._buffers[name]
            assert buffer is not None
            kinds.setdefault((buffer.dtype, buffer.device), []).append((module, name))
        for places in kinds.values():
            flat = torch.cat([module._buffers[name].detach().reshape(-1) for module, name in places])  # type: ignore[union-attr]
            self._travelling.append(
                (dist.broadcast(flat, group=self._group, group_src=self._source, async_op=True), flat, places)
            )  # type: ignore[arg-type]

    @torch.no_grad()
    def receive(self) -> None:
        """Put what was sent in place; waits for it, for at most the group's timeout."""
        for work, flat, places in self._travelling:
            work.wait()
            if dist.get_rank(self._group) == self._source:
                continue
            buffers = [module._buffers[name] for module, name in places]
            for buffer, piece in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):  # type: ignore[union-attr]
                buffer.copy_(piece.view(buffer.shape))  # type: ignore[union-attr]
        self._travelling.clear()

    def values(self) -> list[torch.Tensor]:
        """A copy of each buffer."""
        return [module._buffers[name].detach().clone() for module, name in self._places]  # type: ignore[union-attr]
