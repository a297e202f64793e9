"""Functions of torch that keep or hand out a tensor itself, wrapped so that its pending update comes first.

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

_ESCAPING_FUNCTIONS: tuple[tuple[Any, str], ...] = (
    (torch._C.ScriptObject, "setattr"),
    (torch._C, "_create_function_from_trace"),
    (torch._C, "_create_function_from_trace_with_dict"),
    (eager_transforms, "_maybe_wrap_functional_tensor"),
    (torch._C, "_to_dlpack"),
    (dlpack, "to_dlpack"),
    (torch, "to_dlpack"),
)


def guard_escapes() -> None:
    """Wrap the functions above, so that each waits for pending updates and gradients of its arguments first.

    A function that a script has imported by its own name stays unwrapped.
    """
    for owner, name in _ESCAPING_FUNCTIONS:
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
