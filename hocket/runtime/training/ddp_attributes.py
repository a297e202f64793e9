"""Attributes of DistributedDataParallel that scripts use, given to a model that is distributed.

``model.module``, ``model.no_sync()``, ``model.require_backward_grad_sync = False`` and the like work as on
the wrapper, or are refused in one line that says what stands in their place. A model's own attribute
of the same name stays its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, MutableMapping
from typing import Any, NoReturn, Protocol

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Joinable

from hocket.errors import HocketError
from hocket.runtime.training.comm_hooks import CommHooks, ShortenGradients

_SYNC = "require_backward_grad_sync"
# Scripts set these to values of their own; they stay ours.
_SETTINGS = (_SYNC, "_join_config")
_RECORD = "_hocket_gave"
_ABSENT = object()


class DistributedHandle(Protocol):
    """The part of ``model.hocket`` that names of DistributedDataParallel's need."""

    def no_sync(self) -> Any:
        """Within, gradients accumulate here."""

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Any:
        """Within, ranks may have different numbers of batches."""


class SyncSetting:
    """``model.require_backward_grad_sync``: whether gradients of the next pass travel, True where unset."""

    def __init__(self, model: torch.nn.Module) -> None:
        holder = holder_of(model)
        self._values: MutableMapping[str, Any] = {} if _has(holder, _SYNC) else vars(holder)

    @property
    def travels(self) -> bool:
        """As it is now."""
        return bool(self._values.get(_SYNC, True))

    @travels.setter
    def travels(self, value: bool) -> None:
        self._values[_SYNC] = value


def give_ddp_attributes(
    model: torch.nn.Module,
    handle: DistributedHandle,
    process_group: dist.ProcessGroup | None,
    sends_buffers: bool,
    joinable: Joinable | None = None,
    shorten_gradients: ShortenGradients | None = None,
) -> None:
    """Give ``model`` the attributes that it would have as DistributedDataParallel, but not its own names.

    ``process_group``: the one that it trains on, None where it trains with parameter servers;
    ``sends_buffers``: whether they are kept equal; ``joinable``: what torch's Join may ask of the model;
    ``shorten_gradients``: what communication hooks may ask for, None where they cannot be had.
    :func:`given_attributes` lists what was given.
    """
    asked_by_join: dict[str, Any] = {}
    if joinable is not None:
        asked_by_join = {
            "join_hook": joinable.join_hook,
            "join_device": joinable.join_device,
            "join_process_group": joinable.join_process_group,
            "_join_config": joinable._join_config,
        }
    hooks = CommHooks(process_group, shorten_gradients)
    _give(
        model,
        {
            **asked_by_join,
            "module": model,
            _SYNC: True,
            "no_sync": handle.no_sync,
            "process_group": process_group,
            "join": handle.join,
            "device_ids": None,
            "find_unused_parameters": True,
            "static_graph": False,
            "will_sync_module_buffers": lambda: sends_buffers and bool([*model.buffers()]),
            "register_comm_hook": hooks.register,
            "_register_builtin_comm_hook": hooks.register_builtin,
            "_register_fused_optim": _register_fused_optim,
            "_set_static_graph": lambda: None,  # what is used is seen in every step
            "_get_ddp_logging_data": _get_ddp_logging_data,
            "reducer": _Nothing("reducer", "model.hocket is what can be asked of its training"),
            "logger": _Nothing("logger", "model.hocket.explain() and model.hocket.timeline tell of it"),
        },
    )


def given_attributes(module: torch.nn.Module) -> list[str]:
    """The attributes in ``vars(module)`` that are there by :func:`give_ddp_attributes`: no part of a copy."""
    record: Mapping[str, Any] | None = vars(module).get(_RECORD)
    if record is None:
        return []
    held = vars(module)
    return [_RECORD, *(n for n, v in record.items() if n in _SETTINGS or held.get(n, _ABSENT) is v)]


def _give(model: torch.nn.Module, values: Mapping[str, Any]) -> None:
    holder = holder_of(model)
    mine = {name: value for name, value in values.items() if not _has(holder, name)}
    # Not by setattr: a module would become a part of itself.
    vars(holder).update(mine)
    vars(holder)[_RECORD] = mine


def holder_of(model: torch.nn.Module) -> torch.nn.Module:
    """The module that has the attributes of ``model``: of a compiled one, the one within."""
    within = model._modules.get("_orig_mod")
    return model if within is None else holder_of(within)


def _has(model: torch.nn.Module, name: str) -> bool:
    """Tell whether ``model`` has ``name`` itself; a property is not evaluated for that."""
    registered = (model._parameters, model._buffers, model._modules)
    if any(name in each for each in registered):
        return True
    if inspect.getattr_static(model, name, _ABSENT) is not _ABSENT:
        return True
    if type(model).__getattr__ is torch.nn.Module.__getattr__:
        return False
    try:
        getattr(model, name)  # it may hand on to a module within
    except Exception:
        return False
    return True


def _register_fused_optim(optim: type, *_: Any, **__: Any) -> NoReturn:
    raise HocketError(
        f"{optim.__name__} is to step within the backward pass; give the optimizer to hocket.distribute, and"
        " its steps run as gradients arrive"
    )


def _get_ddp_logging_data() -> NoReturn:
    raise HocketError(
        "there are no counters of DistributedDataParallel; model.hocket.explain() has Hocket's own"
    )


class _Nothing:
    """A part of DistributedDataParallel that does not exist here; who asks it for something gets one line."""

    def __init__(self, name: str, instead: str) -> None:
        self._line = (
            f"DistributedDataParallel's '{name}' does not exist in a model that Hocket trains; {instead}"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # copies, pickles and the like look whether there is such a method
        raise HocketError(f"{self._line} (it was asked for '{name}')")
