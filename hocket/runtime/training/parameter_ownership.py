"""The parameters that a model has, and which training sums up the gradients of each.

A script may put others in a model, in an optimizer, or unfreeze some, after ``hocket.distribute``. Nobody
sums up the gradients of those, and ranks that update them drift apart without a word: they are refused.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from hocket.errors import HocketError
from hocket.runtime.training.ignored_parameters import kept_alike

Parameter = torch.nn.Parameter

# Of each parameter that is trained: the model that is distributed, and its name there.
_OWNERS: Any = WeakIdKeyDictionary()

WHOLE_ONLY = (
    "which trains whole models, on CPUs over gloo only: give the model as it was before to hocket.shard, or"
    " keep FSDP and train without Hocket"
)
_AGAIN = "detach the model (model.hocket.detach()) and call hocket.distribute again"


def claim(model: torch.nn.Module, parameters: Mapping[str, Parameter]) -> Callable[[], None]:
    """Have ``parameters`` trained as ``model``'s, and nobody else's; returns what gives them free."""
    owner = weakref.ref(model)
    for name, p in parameters.items():
        _OWNERS[p] = owner, name

    def release() -> None:
        for p in parameters.values():
            if p in _OWNERS and _OWNERS[p][0] is owner:
                del _OWNERS[p]

    return release


def refuse_claimed(parameters: Mapping[str, Parameter]) -> None:
    """Refuse ``parameters``, by name, of which another model trains one.

    Raises
    ------
    HocketError
        Naming the first, here and there.
    """
    for name, p in parameters.items():
        if owner := _owner(p):
            model, there = owner
            raise HocketError(
                f"'{name}' is trained already, as '{there}' of a {type(model).__name__} that is distributed;"
                " make one module of the two models, and distribute that, or detach the other one first"
            )


def _owner(p: Parameter) -> tuple[torch.nn.Module, str] | None:
    owner, name = _OWNERS.get(p, (None, ""))
    model = owner() if owner is not None else None
    return None if model is None else (model, name)


class Members:
    """The parameters of ``model`` when it was distributed; ``trained``: those with gradients to sum up."""

    def __init__(self, model: torch.nn.Module, trained: Iterable[Parameter]) -> None:
        self._model = model
        self._names = {p: name for name, p in model.named_parameters()}
        self._dtypes = {p: p.dtype for p in trained}
        alike = kept_alike(model)[0].values()
        self._frozen = [p for p in alike if p not in self._dtypes]
        # Parameters whose gradients are left alone: ignored by name, or an optimizer's from elsewhere.
        self._others = set(self._names).difference(self._dtypes, self._frozen)
        self._tables: Sequence[dict[str, Any]] = ()
        self._parts_seen: Sequence[Any] = ()
        self._look()

    def accept(self, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` updates what it has now: what of it is not the model's is its script's affair."""
        self._others.update(p for p in _parameters_of(optimizer) if p not in self._names)

    def refuse_newcomers(self) -> None:
        """Refuse parameters that the model has got since, and that are to be trained.

        Raises
        ------
        HocketError
            Naming the first.
        """
        now = list(chain.from_iterable(table.values() for table in self._tables))
        if len(now) == len(self._parts_seen) and all(map(operator.is_, now, self._parts_seen)):
            return
        found = dict(self._model.named_parameters())
        for name, p in found.items():
            known = p in self._names or p in self._others or not isinstance(p, Parameter)
            if p.requires_grad and not known and not _owner(p):
                if hasattr(p, "device_mesh") or _is_fully_sharded(self._model):
                    raise HocketError(
                        f"'{name}' is another tensor: the model was sharded (fully_shard, tensor parallelism)"
                        f" after hocket.distribute, {WHOLE_ONLY}"
                    )
                raise HocketError(
                    f"'{name}' has come to the model after hocket.distribute was called: nobody sums up its"
                    f" gradients; {_AGAIN}"
                )
        # Other tensors stand there for one pass (torch.func.functional_call), and are not ours to keep.
        if all(isinstance(p, Parameter) for p in found.values()):
            self._look()

    def refuse_thawed(self) -> None:
        """Refuse parameters that were frozen, and have gradients by now.

        Raises
        ------
        HocketError
            Naming the first.
        """
        for p in self._frozen:
            if p.requires_grad and p.grad is not None and not _owner(p):
                raise HocketError(
                    f"'{self._names[p]}' was frozen when hocket.distribute was called, and has a gradient:"
                    f" nobody sums it up; have it trained there and freeze it afterwards, or {_AGAIN}"
                )

    def refuse_untrained(self, optimizer: torch.optim.Optimizer) -> None:
        """Refuse to step what nobody sums up the gradients of.

        Raises
        ------
        HocketError
            Naming the first parameter.
        """
        self.refuse_thawed()
        for p in _parameters_of(optimizer):
            if (dtype := self._dtypes.get(p)) is not None:
                if p.dtype is not dtype:
                    raise HocketError(
                        f"'{self._names[p]}' is {p.dtype} and was {dtype} when hocket.distribute"
                        " was called: nobody sums up its gradients any more; convert the model before that"
                    )
            elif not (p in self._names or p in self._others or p.grad is None or _owner(p)):
                shown = next((f"'{name}'" for name, q in self._model.named_parameters() if q is p), "")
                raise HocketError(
                    f"{shown or f'a parameter of shape {tuple(p.shape)}'} was added to the"
                    f" {type(optimizer).__name__} after hocket.distribute was called, and no model that is"
                    f" distributed has it: nobody sums up its gradients; put it in the model, {_AGAIN}"
                )

    def _look(self) -> None:
        """Keep what the model holds, to see at a glance whether that has changed."""
        modules = list(self._model.modules())
        self._tables = [table for m in modules for table in (m._parameters, m._modules) if table]
        self._parts_seen = list(chain.from_iterable(table.values() for table in self._tables))


def _is_fully_sharded(model: torch.nn.Module) -> bool:
    """Tell whether a part of it was given to ``fully_shard``: in a pass its parameters are no DTensors."""
    return any(kind.__name__ == "FSDPModule" for module in model.modules() for kind in type(module).__mro__)


def _parameters_of(optimizer: torch.optim.Optimizer) -> list[Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]
