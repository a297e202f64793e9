"""An optimizer whose steps run on servers: its class says what they do, its groups with which settings."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from hocket.errors import HocketError
from hocket.runtime.ps.training import ServedTraining


def attach(
    optimizer: torch.optim.Optimizer, training: ServedTraining, parameters: Mapping[str, torch.nn.Parameter]
) -> Callable[[], None]:
    """Let ``optimizer.step`` be ``training``'s, and its state dict the servers'; returns what undoes it."""
    before = vars(optimizer).get("step")

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
        training.step()

    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]

    def fetch(_: torch.optim.Optimizer) -> None:
        state = training.client.optimizer_state()
        for name, p in parameters.items():
            mine = {key.rpartition("/")[2]: v for key, v in state.items() if key.rpartition("/")[0] == name}
            if mine:
                optimizer.state[p] = mine

    def refuse(_: torch.optim.Optimizer, __: object) -> None:
        raise HocketError(
            "the servers hold the optimizer's state; load a state dict before hocket.distribute"
        )

    handles = [
        optimizer.register_state_dict_pre_hook(fetch),
        optimizer.register_load_state_dict_pre_hook(refuse),
    ]

    def detach() -> None:
        fetch(optimizer)
        for handle in handles:
            handle.remove()
        del optimizer.step
        if before is not None:
            optimizer.step = before  # type: ignore[method-assign]

    return detach
