"""An optimizer whose steps run on servers: its class says what they do, its groups with which settings."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from hocket.errors import HocketError
from hocket.runtime.lazy.optimizer_state import watch_state
from hocket.runtime.ps.worker.fetched_state import FetchedState
from hocket.runtime.ps.worker.served_training import ServedTraining
from hocket.runtime.training.hooks import Parameter


def attach(
    optimizer: torch.optim.Optimizer, training: ServedTraining, parameters: Mapping[str, Parameter]
) -> Callable[[], None]:
    """Let ``optimizer.step`` be ``training``'s, and its state the servers'; returns what undoes it."""
    before = vars(optimizer).get("step")
    state = FetchedState(optimizer, training, parameters)
    groups = _groups_of(optimizer)
    homes = {p: groups[p] for p in parameters.values()}
    names = {p: name for name, p in training.model.named_parameters()}

    def step(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> None:
        self._opt_called = True  # type: ignore[attr-defined]  # schedulers look for it
        if closure is not None:
            raise HocketError(
                "a closure evaluates the model within the step, which runs on servers; leave it out"
            )
        if any(
            (
                self._optimizer_step_pre_hooks,
                self._optimizer_step_post_hooks,
                torch_optimizer._global_optimizer_pre_hooks,
                torch_optimizer._global_optimizer_post_hooks,
            )
        ):
            raise HocketError(
                "the optimizer's step hooks would see no step, which runs on servers; remove them"
            )
        if getattr(self, "grad_scale", None) is not None or getattr(self, "found_inf", None) is not None:
            raise HocketError(
                "a fused optimizer unscales gradients within its step, which runs on servers; make it"
                " without fused"
            )
        _check_groups(optimizer, homes, names)
        state.refuse_changes()
        training.step()

    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]
    state_of = type(optimizer).__getstate__

    def get_state(self: torch.optim.Optimizer) -> Any:
        state.look()
        return state_of(self)

    vars(optimizer)["__getstate__"] = types.MethodType(get_state, optimizer)

    def refuse(_: torch.optim.Optimizer, __: object) -> None:
        raise HocketError(
            "the servers hold the optimizer's state; load a state dict before hocket.distribute"
        )

    handles = [
        optimizer.register_state_dict_pre_hook(lambda _: state.fetch()),
        optimizer.register_load_state_dict_pre_hook(refuse),
    ]
    forget_state = watch_state(optimizer, state.look)

    def detach() -> None:
        state.look()
        forget_state()
        for handle in handles:
            handle.remove()
        del optimizer.step, vars(optimizer)["__getstate__"]
        if before is not None:
            optimizer.step = before  # type: ignore[method-assign]

    return detach


def _groups_of(optimizer: torch.optim.Optimizer) -> dict[Parameter, int]:
    """The group of each of its parameters."""
    return {p: k for k, group in enumerate(optimizer.param_groups) for p in group["params"]}


def _check_groups(
    optimizer: torch.optim.Optimizer, homes: Mapping[Parameter, int], names: Mapping[Parameter, str]
) -> None:
    """Refuse what ``optimizer`` would update and servers do not, or in another group than ``homes`` says."""
    groups = _groups_of(optimizer)
    for p in groups:
        if p not in homes and p.grad is not None:
            shown = f"'{names[p]}'" if p in names else "a parameter that the optimizer was given later"
            raise HocketError(
                f"{shown} has a gradient, but was not trained when hocket.distribute was called,"
                " so no server holds it; unfreeze it, and add it to the optimizer, before that"
            )
    for p, home in homes.items():
        if groups.get(p) != home and p.grad is not None:
            raise HocketError(
                f"'{names[p]}' has a gradient, but is no longer in group {home} of the optimizer, with whose"
                " settings servers update it; leave it there, and to freeze it set requires_grad to False and"
                " grad to None"
            )
