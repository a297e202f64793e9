"""Buffers, such as BatchNorm's statistics: rank 0's hold everywhere, as in DistributedDataParallel.

DDP broadcasts them when a forward pass begins and waits. Here rank 0's leave when its forward pass has ended
and are put in place when the next one begins, by when they have long arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from hocket.runtime.group import Group

_Place = tuple[torch.nn.Module, str]


@dataclass(frozen=True)
class _Sent:
    """Buffers of one type on their way: ``flat`` is to be rank 0's, ``own`` is what this rank had."""

    work: dist.Work
    flat: torch.Tensor
    own: torch.Tensor
    places: list[_Place]
    shapes: list[torch.Size]

    def each(self) -> list[tuple[_Place, torch.Tensor, torch.Tensor]]:
        """Every place with rank 0's value and this rank's, shaped as they were."""
        sizes = [shape.numel() for shape in self.shapes]
        pairs = zip(self.flat.split(sizes), self.own.split(sizes), strict=True)
        rows = zip(self.places, pairs, self.shapes, strict=True)
        return [(place, theirs.view(shape), mine.view(shape)) for place, (theirs, mine), shape in rows]


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
        self._travelling: list[_Sent] = []

    def send(self) -> None:
        """Start sending rank 0's; nothing happens where there are none or they are on their way."""
        if self._travelling or self._none:
            return
        self._sent_as = self._versions()
        kinds: dict[tuple[torch.dtype, torch.device], list[_Place]] = {}
        for place in self._places():
            kinds.setdefault((_value(place).dtype, _value(place).device), []).append(place)
        for places in kinds.values():
            values = [_value(place).detach() for place in places]
            flat = torch.cat([value.reshape(-1) for value in values])
            own, shapes = flat.clone(), [value.shape for value in values]
            self._travelling.append(_Sent(self._group.broadcast(flat), flat, own, places, shapes))

    def send_again(self) -> None:
        """Whatever was sent before, send rank 0's as they are now; all ranks are here."""
        for sent in self._travelling:
            sent.work.wait()
        self._travelling.clear()
        self.send()

    @torch.no_grad()
    def receive(self) -> None:
        """Put what was sent in place; waits for it, for at most the group's timeout.

        What this rank has changed since is newer, and stays until the next time.
        """
        now = self._versions()
        for sent in self._travelling:
            sent.work.wait()
            if self._group.rank == 0:
                continue
            for place, theirs, mine in sent.each():
                if self._is_as_sent(place, mine, now):
                    _value(place).copy_(theirs)
        self._travelling.clear()

    @property
    def changed(self) -> bool:
        """Whether this rank's have changed since they were sent, and not been received since."""
        now = self._versions()
        return bool(self._travelling) and (
            self._sent_as != now
            or not all(
                self._is_as_sent(place, mine, now)
                for sent in self._travelling
                for place, _, mine in sent.each()
            )
        )

    def values(self) -> list[torch.Tensor]:
        """A copy of each buffer."""
        return [_value(place).detach().clone() for place in self._places()]

    def _is_as_sent(self, place: _Place, own: torch.Tensor, now: dict[_Place, tuple[int, int]]) -> bool:
        """Whether nobody has changed a buffer since; versions say nothing of what goes by ``data``."""
        return now.get(place) == self._sent_as[place] and torch.equal(_bits(_value(place)), _bits(own))

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


def _bits(value: torch.Tensor) -> torch.Tensor:
    """``value`` as bytes, of which NaN's are equal to themselves."""
    whole = value.detach().resolve_conj().resolve_neg().reshape(-1)
    return whole.contiguous().view(torch.uint8)  # one of strides is a view of them still
