"""The buffers of a model that are to be alike on all ranks, where they are and as what they travel."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from hocket.runtime.training.ignored_parameters import is_ignored


@dataclass(frozen=True)
class BufferPlace:
    """The place of a buffer, under which ``path`` in the model, and as what it travels."""

    path: str
    module: torch.nn.Module
    name: str
    shape: torch.Size
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """The bytes that travel for it."""
        return self.shape.numel() * self.dtype.itemsize

    @property
    def value(self) -> torch.Tensor | None:
        """The tensor that is there by now, if it is of this shape and type."""
        buffer = self.module._buffers.get(self.name)
        alike = buffer is not None and buffer.shape == self.shape and buffer.dtype is self.dtype
        return buffer if alike else None


def places_of(model: torch.nn.Module, ignored_names: Collection[str]) -> list[BufferPlace]:
    """Every buffer once, those of the largest elements first: as bytes they stay aligned."""
    seen: set[int] = set()
    found = []
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is None or not buffer.numel() or id(buffer) in seen:
                continue
            if ignored_names and is_ignored(prefix, name, ignored_names):
                continue
            seen.add(id(buffer))
            path = f"{prefix}.{name}".lstrip(".")
            found.append(BufferPlace(path, module, name, buffer.shape, buffer.dtype))
    # And those of a type one behind the other.
    return sorted(found, key=lambda place: (-place.dtype.itemsize, str(place.dtype)))


def num_bytes(places: Sequence[BufferPlace]) -> int:
    """The bytes that travel for all of ``places``."""
    return sum(place.num_bytes for place in places)


def digest(places: Sequence[BufferPlace]) -> int:
    """A number that ranks have in common whose buffers have the same shapes and types."""
    return zlib.crc32(str([(place.shape, place.dtype) for place in places]).encode())


def bytes_of(places: Sequence[BufferPlace]) -> torch.Tensor:
    """The values at ``places``, which are there, one behind the other."""
    kinds: dict[torch.dtype, list[torch.Tensor]] = {}
    for place in places:
        value = place.value
        assert value is not None
        kinds.setdefault(place.dtype, []).append(value.detach().reshape(-1))
    if not kinds:  # they may be gone since the model was distributed
        return torch.zeros(0, dtype=torch.uint8)
    return torch.cat([bits(torch.cat(values)) for values in kinds.values()])


def split_by_place(data: torch.Tensor, places: Sequence[BufferPlace]) -> Sequence[torch.Tensor]:
    """The part of ``data`` that is of each of ``places``."""
    parts: Sequence[torch.Tensor] = data.split([place.num_bytes for place in places])
    return parts


def bits(values: torch.Tensor) -> torch.Tensor:
    """``values`` as bytes: NaNs are equal to themselves there."""
    # One of strides is a view of memory still.
    return values.resolve_conj().resolve_neg().contiguous().view(torch.uint8)
