"""Changes of buffers: seen by their values on processors, by their versions on a GPU.

There, to look at a value is to wait for all that the GPU was asked for. Torch counts what writes to a tensor,
with exceptions. Writes to BatchNorm's statistics are not counted, while those to its number of batches are:
the buffers of such a layer count as one. Nor are writes by ``.data``, by numpy or by a kernel of one's own:
they are looked for on the GPU, without waiting, and what is found is known a pass later.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Protocol

import torch
from torch.nn.modules.batchnorm import _NormBase

from hocket.runtime.training.buffer_places import BufferPlace, bits, bytes_of, split_by_place
from hocket.runtime.transfers.training_device import PROCESSORS, Event, TrainingDevice

_WAITED_FOR = 4  # comparisons: the first passes may wait, and show what a script does in each step


class Seen(Protocol):
    """A look at the buffers at ``places``: as they were then."""

    places: list[BufferPlace]

    def bytes(self) -> torch.Tensor:
        """Their values, one behind the other; to be asked for before they change."""

    def equals(self, now: Seen) -> bool:
        """Tell whether nothing has changed since; ``now``: another look."""

    def is_still(self, index: int) -> bool:
        """Tell whether the buffer at this place has not changed since."""


class ValuesSeen:
    """Values of buffers, which processors compare."""

    def __init__(self, places: list[BufferPlace]) -> None:
        self.places, self._own = places, bytes_of(places)
        self._parts: Sequence[torch.Tensor] = ()

    def bytes(self) -> torch.Tensor:
        """Those that were seen."""
        return self._own

    def equals(self, now: Seen) -> bool:
        """Compare their bits."""
        return torch.equal(self._own, now.bytes())

    def is_still(self, index: int) -> bool:
        """Compare the bits of one."""
        self._parts = self._parts or split_by_place(self._own, self.places)
        buffer = self.places[index].value
        return buffer is not None and torch.equal(bits(buffer.detach().reshape(-1)), self._parts[index])


class VersionsSeen:
    """Buffers of a device, with the numbers of writes that torch has counted."""

    def __init__(self, places: list[BufferPlace]) -> None:
        self.places = places
        self._of_norms: dict[torch.nn.Module, list[BufferPlace]] = {}
        for place in places:
            if isinstance(place.module, _NormBase):
                self._of_norms.setdefault(place.module, []).append(place)
        self._marks = {place: _mark(place) for place in places}
        self._own: torch.Tensor | None = None

    def bytes(self) -> torch.Tensor:
        """Those that are there when this is called first."""
        if self._own is None:
            self._own = bytes_of(self.places)
        return self._own

    def equals(self, now: Seen) -> bool:
        """Compare which tensors they are, and their versions."""
        return isinstance(now, VersionsSeen) and self._marks == now._marks

    def is_still(self, index: int) -> bool:
        """Compare its own mark, or those of all of its layer."""
        place = self.places[index]
        return all(_mark(p) == self._marks[p] for p in self._of_norms.get(place.module, [place]))


def look_at(places: list[BufferPlace], device: TrainingDevice) -> Seen:
    """A look at the buffers at ``places``, on ``device``, as they are now."""
    return ValuesSeen(places) if device is PROCESSORS else VersionsSeen(places)


def changed_names(before: Seen, after: Seen, theirs: tuple[torch.Tensor, torch.Tensor] | None) -> list[str]:
    """The names of buffers that changed between two looks.

    ``theirs``: copies on the host of what came of each, to compare; None: this rank has sent them.
    """
    index = {place: k for k, place in enumerate(before.places)}
    if theirs is None:
        return [p.path for p in after.places if p not in index or not before.is_still(index[p])]
    old, new = (split_by_place(data, seen.places) for data, seen in zip(theirs, (before, after), strict=True))
    return [
        p.path
        for p, value in zip(after.places, new, strict=True)
        if p not in index or not torch.equal(value, old[index[p]])
    ]


class UnseenWrites:
    """Writes to buffers of ``device`` that torch does not count; once there was one, there may be others.

    ``found``: whether there was one.
    """

    def __init__(self, device: TrainingDevice) -> None:
        self._device = device
        self._compared = 0
        self._pending: tuple[torch.Tensor, Event] | None = None
        self.found = False

    def look_for(self, sent: Seen, now: Seen) -> bool:
        """Tell whether one is known of; have what was ``sent`` compared with what is there ``now``."""
        if self._device is PROCESSORS or self.found:
            return self.found
        self._read()
        if self._pending is None:
            differs = sent.bytes().ne(now.bytes()).any()
            fetched = self._device.fetch_to_host(differs)
            self._pending = differs if fetched is None else fetched, self._device.record()
            self._compared += 1
            if self._compared <= _WAITED_FOR:
                self._device.wait(self._pending[1])
                self._read()
        return self.found

    def _read(self) -> None:
        if self._pending is None or not self._device.has_passed(self._pending[1]):
            return
        (differs, _), self._pending = self._pending, None
        self.found = bool(differs)  # in memory of the host
        if self.found and self._compared > _WAITED_FOR:
            warnings.warn(
                "a buffer was changed between passes by a write that torch does not count (.data, numpy, or a"
                " kernel of one's own), which a step on a GPU does not wait to see: for one pass other ranks"
                " had the value before it. From now on buffers are sent when a pass begins, as"
                " DistributedDataParallel sends them",
                stacklevel=2,
            )


def _mark(place: BufferPlace) -> object:
    """Something that is equal as long as the buffer at ``place`` is this tensor, and nothing was counted."""
    buffer = place.value
    if buffer is None or buffer.is_inference():  # whose writes are not counted at all
        return object()
    return _Tensor(buffer), buffer._version, buffer.data_ptr()


class _Tensor:
    """A tensor that is equal to itself alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tensor) and self._tensor is other._tensor

    __hash__ = None  # type: ignore[assignment]
