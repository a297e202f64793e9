"""Buffers, such as BatchNorm's statistics: rank 0's hold everywhere, as in DistributedDataParallel.

DDP broadcasts them when a forward pass begins and waits. Here rank 0's leave when its forward pass has ended
and are put in place when the next one begins, by when they have long arrived.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from hocket.runtime.group import Group

_Place = tuple[torch.nn.Module, str]


class StateBuffers:
    """The buffers of ``model`` on ``group``.

    ``changing``: somebody changes buffers between steps, as the first steps have shown; then they are sent
    anew when a forward pass begins. All ranks agree on it.
    """

    def __init__(self, model: torch.nn.Module, group: Group) -> None:
        self._group = group
        self._model = model
        self.changing = False
        # DDP keeps none alike of a model that has none when it is wrapped.
        self._none = not self._places()
        self._sent_as: dict[_Place, tuple[int, int]] = {}
        self._travelling: list[tuple[dist.Work, torch.Tensor, list[_Place]]] = []

    def send(self) -> None:
        """Start sending rank 0's; nothing happens where there are none or they are on their way."""
        if self._travelling or self._none:
            return
        self._sent_as = self._versions()
        kinds: dict[tuple[torch.dtype, torch.device], list[_Place]] = {}
        for place in self._places():
            kinds.setdefault((_value(place).dtype, _value(place).device), []).append(place)
        for places in kinds.values():
            flat = torch.cat([_value(place).detach().reshape(-1) for place in places])
            self._travelling.append((self._group.broadcast(flat), flat, places))

    def send_again(self) -> None:
        """Whatever was sent before, send rank 0's as they are now; all ranks are here."""
        for work, _, _ in self._travelling:
            work.wait()
        self._travelling.clear()
        self.send()

    @torch.no_grad()
    def receive(self) -> None:
        """Put what was sent in place; waits for it, for at most the group's timeout.

        What this rank has changed since is newer, and stays until the next time.
        """
        now = self._versions()
        for work, flat, places in self._travelling:
            work.wait()
            if self._group.rank == 0:
                continue
            pieces = flat.split([_value(place).numel() for place in places])
            for place, piece in zip(places, pieces, strict=True):
                if now.get(place) == self._sent_as[place]:
                    _value(place).copy_(piece.view(_value(place).shape))
        self._travelling.clear()

    @property
    def changed(self) -> bool:
        """Whether this rank's have changed since they were sent, and not been received since."""
        return bool(self._travelling) and self._sent_as != self._versions()

    def values(self) -> list[torch.Tensor]:
        """A copy of each buffer."""
        return [_value(place).detach().clone() for place in self._places()]

    def _versions(self) -> dict[_Place, tuple[int, int]]:
        return {place: (id(_value(place)), _value(place)._version) for place in self._places()}

    def _places(self) -> list[_Place]:
        return [
            (module, name)
            for module in self._model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and buffer.numel()
        ]


def _value(place: _Place) -> torch.Tensor:
    module, name = place
    buffer = module._buffers[name]
    assert buffer is not None
    return buffer
