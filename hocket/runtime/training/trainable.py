"""Refusals of models that cannot be trained at all, and the outline of a step before the first one."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from hocket.errors import HocketError
from hocket.graph import OperationRow, StepGraph, StepRows, step_from_rows
from hocket.logs import logger
from hocket.runtime.observe.step_rows import parameter_rows
from hocket.runtime.training.ignored_parameters import kept_alike
from hocket.runtime.training.parameter_ownership import WHOLE_ONLY, refuse_claimed

Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]


def optimizers_of(optimizer: Optimizers) -> list[torch.optim.Optimizer]:
    """One optimizer, or several, as a list.

    Raises
    ------
    HocketError
        For what is none. An object that steps as one, and has groups of parameters, counts as one.
    """
    optimizers = list(optimizer) if isinstance(optimizer, Iterable) else [optimizer]
    for each in optimizers:
        if not isinstance(each, torch.optim.Optimizer) and not _steps(each):
            raise HocketError(
                f"the optimizer is of type {type(each).__name__}; give a torch.optim.Optimizer or a list"
            )
    return optimizers


def _steps(value: Any) -> bool:
    groups = getattr(value, "param_groups", None)
    return (
        callable(getattr(value, "step", None))
        and hasattr(value, "__dict__")
        and isinstance(groups, list)
        and all(isinstance(group, Mapping) and "params" in group for group in groups)
    )


GPU_SWITCH = "HOCKET_UNTRIED_GPU"
"""The variable that asks for training on GPUs, which is built and was run on none."""


def trained_parameters(
    model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], timeout_s: float
) -> dict[str, torch.nn.Parameter]:
    """The trained parameters by name.

    Raises
    ------
    HocketError
        For what cannot be trained.
    """
    if not isinstance(model, torch.nn.Module):
        raise HocketError(f"the model is of type {type(model).__name__}; give a torch.nn.Module")
    _refuse_parallel(model)
    if any("hocket" in vars(module) for module in model.modules()):
        raise HocketError("the model or a part of it is already distributed; call its hocket.detach() first")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise HocketError(
            "the model or a part of it is TorchScript, which takes no hooks; give what was scripted"
        )
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            raise HocketError(
                f"'{name}' is a SyncBatchNorm, which torch runs on GPUs only; leave it a BatchNorm"
            )
    if not 0 < timeout_s <= 1e9:
        raise HocketError(f"a timeout of {timeout_s} s is not between 0 and 1e9; give e.g. timeout_s=600")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise HocketError(f"'{name}' is lazy and has no shape yet; run a forward pass before distribute")
    parameters = {name: p for name, p in kept_alike(model)[0].items() if p.requires_grad}
    if not parameters:
        raise HocketError("no parameter of the model requires a gradient; there is nothing to distribute")
    _check_devices(parameters)
    refuse_claimed(parameters)
    _check_optimizers(optimizers, parameters, set(model.parameters()))
    return parameters


def _check_devices(parameters: Mapping[str, torch.nn.Parameter]) -> None:
    """Refuse several devices, and any but processors unless the user's environment asks for GPUs."""
    (first, begun), *others = parameters.items()
    for name, p in others:
        if p.device != begun.device:
            raise HocketError(
                f"'{first}' is on {begun.device} and '{name}' on {p.device}; a rank trains on one device:"
                " move all of the model there"
            )
    if begun.device.type == "cpu":
        return
    if begun.device.type == "cuda" and os.environ.get(GPU_SWITCH) == "1":
        logger.warning("training on %s, which no GPU has run yet: compare it with DDP's", begun.device)
        return
    raise HocketError(
        f"'{first}' is on {begun.device}; distribute trains on CPUs so far, move the model there"
        f" ({GPU_SWITCH}=1 has it train on CUDA devices, which no GPU has run yet)"
    )


def _refuse_parallel(model: torch.nn.Module) -> None:
    """Refuse models that are parallel already: wrapped, or sharded over devices."""
    for name, module in model.named_modules():
        wrapper = _wrapper(module)
        if wrapper is not None:
            part = f"'{name}' in the model" if name else "the model"
            if wrapper == "FullyShardedDataParallel":
                raise HocketError(
                    f"{part} is sharded by {wrapper}, and was given to hocket.distribute, {WHOLE_ONLY}"
                )
            raise HocketError(f"{part} is wrapped by {wrapper}; give distribute the module itself")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if hasattr(tensor, "device_mesh"):  # of a DTensor, whose class takes half a second to import
            raise HocketError(
                f"'{name}' is a DTensor, sharded by FSDP2 (fully_shard) or tensor parallelism, and was"
                f" given to hocket.distribute, {WHOLE_ONLY}"
            )


def _wrapper(module: torch.nn.Module) -> str | None:
    """The name of the wrapper that ``module`` is, if it is one that exchanges gradients by itself."""
    for kind in (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel):
        if isinstance(module, kind):
            return kind.__name__
    if any(kind.__name__ == "FullyShardedDataParallel" for kind in type(module).__mro__):
        return "FullyShardedDataParallel"
    return None


def _check_optimizers(
    optimizers: Sequence[torch.optim.Optimizer],
    parameters: Mapping[str, torch.nn.Parameter],
    everything: Container[torch.nn.Parameter],
) -> None:
    """Refuse optimizers that share trained ``parameters``, or have none of ``everything`` in the model."""
    known = set(parameters.values())
    seen: set[torch.nn.Parameter] = set()
    for optimizer in optimizers:
        mine = {p for group in optimizer.param_groups for p in group["params"]}
        if not known.isdisjoint(seen & mine):
            raise HocketError("two optimizers update the same parameter; give each parameter to one of them")
        if not any(p in everything for p in mine):
            raise HocketError(
                f"the {type(optimizer).__name__} has no parameter of the model; make it of this model's own"
                " parameters() once the model is as it is to be trained"
            )
        seen |= mine
    if known.isdisjoint(seen):
        raise HocketError(
            "no optimizer has a parameter of the model that requires a gradient; make one of those, or"
            " unfreeze what it has before hocket.distribute"
        )


def outline(model: torch.nn.Module, parameters: Mapping[str, torch.nn.Parameter]) -> StepGraph:
    """A step of which only the parameters are known."""
    names = list(parameters)
    return step_from_rows(
        StepRows(
            model=type(model).__name__,
            batch_size=1,
            device="cpu",
            parameters=parameter_rows(parameters),
            operations=[
                OperationRow("forward", "forward", 0.0, [], names, []),
                OperationRow("backward", "backward", 0.0, ["forward"], [], names),
            ],
        )
    )
