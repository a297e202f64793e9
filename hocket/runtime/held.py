"""Tensors that the script holds by other names: what happens to them has to be seen there when it is due."""

from __future__ import annotations

import sys

import torch

_TENSORS_AND_QUESTION = 2
_BUCKETS_ARGUMENT_AND_QUESTION = 3


def shares_memory(tensor: torch.Tensor) -> bool:
    """Whether another tensor is in the same memory: a view, ``data``, what a state_dict holds."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) > _TENSORS_AND_QUESTION


def is_held(gradient: torch.Tensor) -> bool:
    """Whether anything but one bucket holds ``gradient``, or a tensor in its memory."""
    return sys.getrefcount(gradient) > _BUCKETS_ARGUMENT_AND_QUESTION or shares_memory(gradient)
