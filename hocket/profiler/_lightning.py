"""LightningModules without a Trainer: their own step, and the optimizer that they configure."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from hocket.errors import HocketError

_FIX = "return (model, batch, loss, optimizer), or run its script: hocket profile FILE.py"


def trains_itself(model: nn.Module) -> bool:
    """True if it is a LightningModule: a module with a step and optimizers of its own."""
    own = (getattr(model, name, None) for name in ("training_step", "configure_optimizers"))
    return all(map(callable, own))


def outputs_of_own_step(model: Any, batch: Any) -> Any:
    """Run a LightningModule's step on ``batch``, its first; what it logs goes nowhere."""
    kinds = [p.kind for p in inspect.signature(model.training_step).parameters.values()]
    positional = sum(
        kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds
    )
    takes_index = positional > 1 or inspect.Parameter.VAR_POSITIONAL in kinds
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*`self\.log\(\)`")
        return model.training_step(batch, 0) if takes_index else model.training_step(batch)


def configured_optimizer(model: Any) -> Optimizer | None:
    """The one optimizer that a LightningModule configures; None for none.

    Raises
    ------
    HocketError
        For several, and for a module that steps them by itself.
    """
    kind = type(model).__name__
    if not getattr(model, "automatic_optimization", True):
        raise HocketError(f"{kind} optimizes by itself (automatic_optimization is False); {_FIX}")
    configured = model.configure_optimizers()
    if isinstance(configured, tuple) and len(configured) == 2 and not isinstance(configured[1], Optimizer):
        configured = configured[0]  # beside schedulers
    found = list(configured) if isinstance(configured, tuple | list) else [configured]
    found = [each["optimizer"] if isinstance(each, Mapping) else each for each in found]
    if len(found) > 1:
        raise HocketError(f"{kind} configures {len(found)} optimizers, and one steps in a profile; {_FIX}")
    if not found or found[0] is None:
        return None
    if not isinstance(found[0], Optimizer):
        made = type(found[0]).__name__
        raise HocketError(f"{kind} configures a {made}; configure_optimizers returns a torch.optim.Optimizer")
    return found[0]
