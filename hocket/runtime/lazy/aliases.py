"""Tensors that the script holds by other names: what happens to them has to be seen there when it is due."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

# Counted in the same words as below, as versions of Python and torch differ in what counts.
_SAMPLE = [torch.empty(0)]
_BY_ONE_HOLDER = sys.getrefcount(_SAMPLE[0])
_PARAMETER = torch.nn.Parameter(torch.empty(0))
_ACCUMULATOR = get_gradient_edge(_PARAMETER).node  # every parameter in training has one


def _holders_of_storage(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    # Every holder that asked for it has the same object.
    return torch._C._storage_Use_Count(storage._cdata), sys.getrefcount(storage)


_BY_ONE_TENSOR = _holders_of_storage(_SAMPLE[0])
_BY_TRAINING = _PARAMETER._use_count()  # type: ignore[attr-defined]


def is_referenced(holder: Any, key: Any) -> bool:
    """Tell whether anything but ``holder`` and a parameter's ``grad`` refers to ``holder[key]``."""
    return sys.getrefcount(holder[key]) > _BY_ONE_HOLDER


def shares_memory(tensor: torch.Tensor) -> bool:
    """Tell whether something else has the memory of ``tensor``.

    That may be a view, ``data``, what a state_dict holds, the storage's own object, or another process.
    """
    return _holders_of_storage(tensor) != _BY_ONE_TENSOR or tensor.untyped_storage().is_shared()


def is_held(parameter: torch.nn.Parameter) -> bool:
    """Tell whether something has the memory of ``parameter``, or, below Python, itself.

    That may be a graph that is kept, a DLPack capsule, an attribute of a TorchScript module.
    """
    return parameter._use_count() > _BY_TRAINING or shares_memory(parameter)  # type: ignore[attr-defined]


def is_state_held(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> bool:
    """Tell whether the script has the state of ``optimizer``, or of ``parameter``, by other names."""
    if "state" not in vars(optimizer):
        return True  # it hands out that of an optimizer within it
    if is_referenced(vars(optimizer), "state"):
        return True
    state = vars(optimizer)["state"]
    if parameter not in state:
        return False
    if is_referenced(state, parameter):
        return True
    own = state[parameter]
    tensors = [key for key in own if isinstance(own[key], torch.Tensor)]
    return any(is_referenced(own, key) or shares_memory(own[key]) for key in tensors)
