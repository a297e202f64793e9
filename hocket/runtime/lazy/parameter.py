"""Parameters whose update is still to come: it runs before their values are touched.

While a step waits for a bucket its parameters are of a class of their own: the object that everybody knows
holds a view, which torch's dispatcher hands to us, and its own tensor is kept aside. Python's functions of
torch finish the bucket before they begin; what is below them (TorchScript, operators in C++, transforms of
functions, collectives) does so with its first operator. Modules do not pay for that: their hooks finish what
they are about to read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils._pytree import tree_map_only

from hocket.errors import HocketError
from hocket.runtime.lazy.gradient import METADATA


class _Wait(NamedTuple):
    """An awaited update: ``run_update`` gives the parameter back; ``own`` holds its tensor meanwhile."""

    run_update: Callable[[], None]
    own: torch.nn.Parameter


_WAITS: dict[torch.nn.Parameter, _Wait] = {}
_swap: Callable[[torch.Tensor, torch.Tensor], None] = torch._C._swap_tensor_impl


class StaleParameter(torch.nn.Parameter):
    """A plain parameter until it is touched; see :func:`await_updates`.

    ``parameter``: of what was in its place while it was waited for; else not there.
    """

    parameter: torch.nn.Parameter

    @staticmethod
    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:  # noqa: D102
        # Copies call the class of what they are of, which is up to date by then.
        return torch.nn.Parameter(data, requires_grad)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _HARMLESS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*[_own(value) if type(value) is StaleParameter else value for value in args])
        args, kwargs = tree_map_only(StaleParameter, have_updated, (args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        # Parameter(parameter) asks what its class makes of itself: it has looked at the class already.
        made = func is torch.Tensor.detach and sys._getframe(1).f_code is _NEW
        return torch.nn.Parameter(result) if made else result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map_only(StaleParameter, _updated_for_operator, (args, kwargs or {}))
        return func(*args, **kwargs)


_NEW = torch.nn.Parameter.__new__.__code__
_GRADIENT: Any = torch.Tensor.grad
# Attributes that are not about values; gradients on their way look after themselves.
_HARMLESS = METADATA | {_GRADIENT.__get__, _GRADIENT.__set__, _GRADIENT.__delete__}


def await_updates(parameters: Iterable[torch.nn.Parameter], run_update: Callable[[], None]) -> bool:
    """Call ``run_update``, which has to call :func:`give_back`, before one of ``parameters`` is touched.

    Returns whether that can be for all: parameters of classes of their own, and those that something has a
    weak reference to below Python, are left alone.
    """
    with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():
        return all(_await_update(p, run_update) for p in parameters)


def _await_update(parameter: torch.nn.Parameter, run_update: Callable[[], None]) -> bool:
    if type(parameter) is not torch.nn.Parameter:
        return type(parameter) is StaleParameter
    own: Any = parameter.as_subclass(
        StaleParameter
    )  # gradients of what is computed of it are the parameter's
    try:
        _swap(parameter, own)
    except RuntimeError:
        return False
    own.__class__, parameter.__class__ = torch.nn.Parameter, StaleParameter
    _WAITS[parameter] = _Wait(run_update, own)
    return True


def give_back(parameter: torch.nn.Parameter) -> None:
    """``parameter`` is up to date.

    Raises
    ------
    HocketError
        Where something of torch's keeps what stands in for it.
    """
    if not _WAITS or (wait := _WAITS.get(parameter)) is None:
        return
    try:
        _swap(parameter, wait.own)
    except RuntimeError:
        raise HocketError(
            "a trace has begun with a parameter that waits for its update; call model.hocket.flush() after"
            " optimizer.step()"
        ) from None
    del _WAITS[parameter]
    stood_in: Any = wait.own
    stood_in.__class__, stood_in.parameter = StaleParameter, parameter
    object.__setattr__(parameter, "__class__", torch.nn.Parameter)


def have_updated(parameter: StaleParameter) -> torch.nn.Parameter:
    """``parameter``, or what it stood in for, up to date."""
    wait = _WAITS.get(parameter)
    if wait is None:
        return parameter.parameter  # something has kept it
    wait.run_update()
    return parameter


def _own(parameter: StaleParameter) -> torch.nn.Parameter:
    wait = _WAITS.get(parameter)
    return parameter.parameter if wait is None else wait.own


def _updated_for_operator(parameter: StaleParameter) -> torch.nn.Parameter:
    """The value that an operator gets that has found ``parameter``."""
    # Autograd may have kept it for the backward pass, which is to find what the operator does.
    with _unsafe_preserve_version_counter(_own(parameter)):
        return have_updated(parameter)
