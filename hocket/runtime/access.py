"""Everybody who looks at a model's parameters finds them up to date.

Forward passes wait by hooks. Here are the other ways to parameters: ``state_dict``, ``load_state_dict``,
``parameters``, copies and pickles. They settle what waits for an update and then do what they always did;
copies and pickles are of the model as it was given to us, without hooks.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any, Protocol

import torch

from hocket.runtime.ddp_attributes import given
from hocket.runtime.reads import Hook, no_hook

_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_forward_hooks_always_called",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
)


class Training(Protocol):
    """What is asked of the training that a model is part of."""

    def update_parameters(self) -> None:
        """Bring every parameter up to date."""

    def before_loading(self) -> None:
        """Values are going to be loaded."""


def guard(model: torch.nn.Module, training: Training) -> Callable[[], None]:
    """Keep ``model`` and its modules up to date for whoever looks; returns what undoes it."""
    handles = []
    for module in model.modules():
        handles.append(module.register_state_dict_pre_hook(Hook(lambda *_: training.update_parameters())))
        handles.append(module.register_load_state_dict_pre_hook(Hook(lambda *_: training.before_loading())))
        _replace(module, "__deepcopy__", _deep_copy(module, training))
        _replace(module, "__reduce_ex__", _reduced(module, training))
    plain_parameters, plain_zero_grad = model.named_parameters, model.zero_grad

    def named_parameters(this: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        del this
        training.update_parameters()
        return plain_parameters(*args, **kwargs)

    def zero_grad(this: torch.nn.Module, set_to_none: bool = True) -> None:
        del this
        if not set_to_none:
            return plain_zero_grad(set_to_none=False)
        for _, p in plain_parameters():
            p.grad = None
        return None

    # Bound, as what they replace: Dynamo looks at the function behind a method.
    _replace(model, "named_parameters", types.MethodType(named_parameters, model))
    if type(model).zero_grad is torch.nn.Module.zero_grad:
        _replace(model, "zero_grad", types.MethodType(zero_grad, model))

    def undo() -> None:
        for handle in handles:
            handle.remove()
        for module in model.modules():
            _hide(module)

    return undo


_REPLACED = ("__deepcopy__", "__reduce_ex__", "named_parameters", "zero_grad", "hocket")


def _replace(module: torch.nn.Module, name: str, value: Any) -> None:
    # An attribute of the instance: the class is the user's, and other models may be of it.
    vars(module)[name] = value


def _hide(module: torch.nn.Module) -> dict[str, Any]:
    names = (*_REPLACED, *given(module))
    return {name: vars(module).pop(name) for name in names if name in vars(module)}


def _deep_copy(module: torch.nn.Module, training: Training) -> Callable[[dict[int, Any]], torch.nn.Module]:
    def deep_copy(memo: dict[int, Any]) -> torch.nn.Module:
        training.update_parameters()
        hidden = _hide(module)
        try:
            copied = copy.deepcopy(module, memo)
        finally:
            vars(module).update(hidden)
        for hooks in (getattr(copied, name) for name in _HOOKS):
            for key in [key for key, hook in hooks.items() if getattr(hook, "hook", hook) is no_hook]:
                del hooks[key]
        return copied

    return deep_copy


def _reduced(module: torch.nn.Module, training: Training) -> Callable[[Any], Any]:
    def reduce_ex(protocol: Any) -> Any:
        return copy.deepcopy(module).__reduce_ex__(protocol)

    return reduce_ex
