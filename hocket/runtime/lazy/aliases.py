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


def _holders_of_base(view: torch.Tensor) -> tuple[int, int]:
    base: Any = [view._base]
    return base[0]._use_count(), sys.getrefcount(base[0])


_BY_ONE_VIEW = _holders_of_base(torch.empty(1).view(1))
_BY_TRAINING = _PARAMETER._use_count()  # type: ignore[attr-defined]


def is_referenced(holder: Any, key: Any) -> bool:
    """Tell whether anything but ``holder`` and a parameter's ``grad`` refers to ``holder[key]``."""
    return sys.getrefcount(holder[key]) > _BY_ONE_HOLDER


def shares_memory(tensor: torch.Tensor, arrived: torch.Tensor | None = None) -> bool:
    """Tell whether something else has the memory of ``tensor``.

    That may be a view, ``data``, what a state_dict holds, the storage's own object, or another process.
    ``arrived``, which autograd is about to let go, and what it is a view of do not count.
    """
    in_torch, in_python = _holders_of_storage(tensor)
    if arrived is not None and torch._C._is_alias_of(tensor, arrived):  # type: ignore[attr-defined]
        in_torch -= 1 if _has_base_of_others(arrived) else 2
    return (in_torch, in_python) != _BY_ONE_TENSOR or tensor.untyped_storage().is_shared()


def _has_base_of_others(view: torch.Tensor) -> bool:
    """Tell whether ``view`` is of no tensor, or of one that something else has."""
    return view._base is None or _holders_of_base(view) != _BY_ONE_VIEW


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
