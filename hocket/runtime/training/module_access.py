"""Everybody who looks at a model's parameters finds them up to date.

Forward passes wait by hooks. Here are the other ways to parameters: ``state_dict``, ``load_state_dict``,
``parameters``, copies and pickles. They update what waits and then do what they always did;
copies, shallow or deep, and pickles are of the model as it was given to us, without hooks.
"""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

import torch

from hocket.errors import HocketError
from hocket.runtime.training.ddp_attributes import given_attributes
from hocket.runtime.training.first_readers import Hook

_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_forward_hooks_always_called",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
)


class AccessedTraining(Protocol):
    """The interface of a training that access to its model needs."""

    def update_parameters(self) -> None:
        """Bring every parameter up to date."""

    def before_loading(self) -> None:
        """Values are going to be loaded."""


def update_before_access(model: torch.nn.Module, training: AccessedTraining) -> Callable[[], None]:
    """Keep ``model`` and its modules up to date when they are looked at; returns what undoes it."""
    handles = []
    for module in model.modules():
        handles.append(module.register_state_dict_pre_hook(Hook(lambda *_: training.update_parameters())))
        handles.append(module.register_load_state_dict_pre_hook(Hook(lambda *_: training.before_loading())))
        _replace(module, "__deepcopy__", _deep_copy(module, training))
        _replace(module, "__reduce_ex__", _reduce_ex(module, training))
        _replace(module, "__prepare_scriptable__", _refuse_scripting)
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


_REPLACED = (
    "__deepcopy__", "__prepare_scriptable__", "__reduce_ex__", "named_parameters", "zero_grad", "hocket",
)  # fmt: skip


def _refuse_scripting() -> NoReturn:
    raise HocketError(
        "torch.jit.script compiles no model that is distributed, since it would compile its hooks: give it"
        " copy.deepcopy(model), or call model.hocket.detach() first"
    )


def _replace(module: torch.nn.Module, name: str, value: Any) -> None:
    # An attribute of the instance: the class is the user's, and other models may be of it.
    vars(module)[name] = value


def _hide(module: torch.nn.Module) -> dict[str, Any]:
    names = (*_REPLACED, *given_attributes(module))
    return {name: vars(module).pop(name) for name in names if name in vars(module)}


@contextlib.contextmanager
def _as_given(module: torch.nn.Module) -> Iterator[None]:
    """Within, ``module`` has nothing of ours, though its parts do."""
    attributes, hidden = vars(module), _hide(module)
    hooks = {name: attributes[name] for name in _HOOKS if name in attributes}
    ours = {
        key
        for each in hooks.values()
        for key, hook in each.items()
        if isinstance(getattr(hook, "hook", hook), Hook)
    }
    for name, each in hooks.items():
        attributes[name] = type(each)((key, hook) for key, hook in each.items() if key not in ours)
    try:
        yield
    finally:
        attributes.update(hidden | hooks)


def _deep_copy(
    module: torch.nn.Module, training: AccessedTraining
) -> Callable[[dict[int, Any]], torch.nn.Module]:
    def deep_copy(memo: dict[int, Any]) -> torch.nn.Module:
        training.update_parameters()
        with _as_given(module):
            return copy.deepcopy(module, memo)

    return deep_copy


def _reduce_ex(module: torch.nn.Module, training: AccessedTraining) -> Callable[[Any], Any]:
    def kept(part: Any) -> Any:
        """``part`` of what the module is made of, as it stays when the module is itself again."""
        if isinstance(part, tuple):
            return tuple(map(kept, part))
        return dict(part) if part is vars(module) else part

    def reduce_ex(protocol: Any) -> Any:
        training.update_parameters()
        with _as_given(module):
            return kept(module.__reduce_ex__(protocol))

    return reduce_ex
