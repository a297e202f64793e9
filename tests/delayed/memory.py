"""Memory of the delayed device: processors' own, told apart by where it is."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import torch

from tests.delayed.streams import Stream

_ALIGNMENT = 64  # as torch's own memory has: kernels round differently elsewhere


class Memory(np.ndarray):
    """A block that tensors of a script hold.

    ``content``: its bytes, which do not hold it; ``stream``: the one that asked for it, and gets it back.
    """

    content: np.ndarray
    stream: Stream


_BLOCKS: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()


def memory_of(tensor: torch.Tensor) -> Memory | None:
    """The block that ``tensor`` is in; None: it is the host's."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return None
    return _BLOCKS.get(tensor.data_ptr() - tensor.storage_offset() * tensor.element_size())


def poison(tensor: torch.Tensor) -> None:
    """Fill it with what nobody can take for a value, or, where that is no number, with zeros."""
    tensor.fill_(math.nan if tensor.is_floating_point() or tensor.is_complex() else 0)


def allocated_like(tensor: torch.Tensor, stream: Stream) -> torch.Tensor:
    """An empty one of its form in a block of its own."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    num_bytes = reach * tensor.element_size()
    whole = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    content = whole[-whole.ctypes.data % _ALIGNMENT :][:num_bytes]
    block: Any = content.view(Memory)
    block.content, block.stream = content, stream
    _BLOCKS[content.ctypes.data] = block
    storage = torch.frombuffer(block, dtype=torch.uint8).untyped_storage()
    return torch.empty(0, dtype=tensor.dtype).set_(storage, 0, tensor.shape, tensor.stride())


class Use:
    """The memory of ``tensor`` in work of ``stream`` that is not done yet, which does not hold it.

    On another stream than the one that has asked for it, it may be another tensor's by then: unless something
    holds it all the time, that work finds it poisoned.
    """

    def __init__(self, tensor: torch.Tensor, block: Memory, stream: Stream) -> None:
        self._content = block.content
        self._held = weakref.ref(block)
        self._own = block.stream is stream
        self._dtype, self._size, self._stride = tensor.dtype, tensor.shape, tensor.stride()
        self._offset = tensor.storage_offset()

    def tensor(self) -> torch.Tensor:
        storage = torch.frombuffer(self._content, dtype=torch.uint8).untyped_storage()
        found = torch.empty(0, dtype=self._dtype).set_(storage, self._offset, self._size, self._stride)
        if not self._own and self._held() is None:
            poison(found)
        return found
