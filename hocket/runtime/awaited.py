"""Parameters whose update is still to come: whoever touches their values has the update first.

While a step waits for a bucket its parameters are of a class of their own. Reading or writing a value through
any function of torch, on whatever way the parameter was come by, settles the bucket and gives the class back.
Modules do not pay for that: their hooks settle what they are about to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_iter

from hocket.runtime.pending import METADATA

_SETTLE: dict[torch.nn.Parameter, Callable[[], None]] = {}


class Awaited(torch.nn.Parameter):
    """A plain parameter until it is touched; see :func:`await_update`."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in _HARMLESS:
            for value in tree_iter((args, kwargs)):
                if type(value) is Awaited:
                    settle = _SETTLE.get(value)
                    # A copy of one is of its class, and awaits nothing.
                    give_back(value) if settle is None else settle()
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


_GRADIENT: Any = torch.Tensor.grad
# What is not about values; gradients on their way look after themselves.
_HARMLESS = METADATA | {_GRADIENT.__get__, _GRADIENT.__set__, _GRADIENT.__delete__}


def await_update(parameter: torch.nn.Parameter, settle: Callable[[], None]) -> None:
    """Call ``settle``, which has to call :func:`give_back`, before anybody touches ``parameter``.

    Parameters of classes of their own are left alone.
    """
    if type(parameter) is torch.nn.Parameter:
        _SETTLE[parameter] = settle
        parameter.__class__ = Awaited


def give_back(parameter: torch.nn.Parameter) -> None:
    """``parameter`` is up to date."""
    if type(parameter) is Awaited:
        _SETTLE.pop(parameter, None)
        object.__setattr__(parameter, "__class__", torch.nn.Parameter)
