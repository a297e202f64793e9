"""The optimizer of a sharded model: made after sharding, or taken over from before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from hocket.errors import HocketError

OptimizerOrFactory = torch.optim.Optimizer | Callable[[Iterator[nn.Parameter]], Any]


def check_optimizer(given: OptimizerOrFactory, model: nn.Module) -> None:
    """Refuse what is neither a function of parameters nor an optimizer of the model that has not stepped.

    Raises
    ------
    HocketError
        With what to give instead.
    """
    if not isinstance(given, torch.optim.Optimizer):
        if not callable(given) or isinstance(given, nn.Module):
            raise HocketError(
                f"the optimizer is of type {type(given).__name__}; give a function that makes one, such as"
                " lambda parameters: torch.optim.AdamW(parameters, lr=3e-4), or the model's"
                " torch.optim.Optimizer"
            )
        return
    name, known = type(given).__name__, set(model.parameters())
    if any(state for state in given.state.values()):
        raise HocketError(
            f"the {name} has a state of the whole parameters already; shard the model before the first step,"
            " and load the state then (torch.distributed.checkpoint)"
        )
    for group in given.param_groups:
        if strange := [p for p in group["params"] if p not in known]:
            raise HocketError(
                f"the {name} has a parameter of shape {tuple(strange[0].shape)} that the model has not;"
                " make it of this model's parameters()"
            )


def take_over(
    given: OptimizerOrFactory, model: nn.Module, names: Mapping[nn.Parameter, str]
) -> torch.optim.Optimizer:
    """The optimizer of the sharded ``model``: made by a function, or that of before, which gets the shards.

    ``names``: of the parameters before they were sharded.

    Raises
    ------
    HocketError
        When the function makes no optimizer of the model.
    """
    if isinstance(given, torch.optim.Optimizer):
        sharded = dict(model.named_parameters())
        for group in given.param_groups:
            group["params"] = [sharded[names[p]] for p in group["params"]]
        return given
    made: Any = given(model.parameters())
    groups = getattr(made, "param_groups", None)
    if not callable(getattr(made, "step", None)) or not isinstance(groups, list):
        raise HocketError(
            f"the optimizer's function returned a {type(made).__name__}; have it return a"
            " torch.optim.Optimizer"
        )
    known, theirs = set(model.parameters()), [p for group in groups for p in group["params"]]
    if any(p in names for p in theirs) or not any(p in known for p in theirs):
        raise HocketError(
            f"the {type(made).__name__} has parameters that are not the sharded model's; have its function"
            " use those that it is given: what the model had before sharding is trained by nobody"
        )
    optimizer: torch.optim.Optimizer = made
    return optimizer
