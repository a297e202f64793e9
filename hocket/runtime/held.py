"""Tensors that the script holds by other names: what happens to them has to be seen there when it is due."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import torch

Holder = Mapping[int, torch.Tensor] | Sequence[torch.Tensor]

# Counted in the same words as below, as versions of Python differ in what counts.
_SAMPLE = [torch.empty(0)]
_BY_ONE_HOLDER = sys.getrefcount(_SAMPLE[0])
_BY_ONE_TENSOR = torch._C._storage_Use_Count(_SAMPLE[0].untyped_storage()._cdata)


def is_referenced(holder: Holder, index: int) -> bool:
    """Whether anything but ``holder`` and a parameter's ``grad`` refers to a tensor of it."""
    return sys.getrefcount(holder[index]) > _BY_ONE_HOLDER


def shares_memory(tensor: torch.Tensor) -> bool:
    """Whether another tensor is in the same memory: a view, ``data``, what a state_dict holds."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) > _BY_ONE_TENSOR
