"""Functions of torch that keep or hand out a tensor itself and ask nobody: what it waits for comes first.

TorchScript's modules and traces and ``functionalize`` keep what they are given; ``to_dlpack`` hands out its
address.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch import eager_transforms
from torch.utils import dlpack
from torch.utils._pytree import tree_map_only

from hocket.runtime.lazy.gradient import PendingGradient, wait_for
from hocket.runtime.lazy.parameter import StaleParameter, have_updated

_PLACES: tuple[tuple[Any, str], ...] = (
    (torch._C.ScriptObject, "setattr"),
    (torch._C, "_create_function_from_trace"),
    (torch._C, "_create_function_from_trace_with_dict"),
    (eager_transforms, "_maybe_wrap_functional_tensor"),
    (torch._C, "_to_dlpack"),
    (dlpack, "to_dlpack"),
    (torch, "to_dlpack"),
)


def ask_first() -> None:
    """From now on each of them asks; what a script imported by its own name stays as it was."""
    for owner, name in _PLACES:
        call = getattr(owner, name)
        if not hasattr(call, "__wrapped__"):
            setattr(owner, name, _asking(call))


def _asking(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def asked(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map_only(StaleParameter, have_updated, (args, kwargs))
        args, kwargs = tree_map_only(PendingGradient, wait_for, (args, kwargs))
        return call(*args, **kwargs)

    return asked
