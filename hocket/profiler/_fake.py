"""Fake tensors, which have shapes and no values: models are built of them in moments and without memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.utils
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch

from hocket.profiler._operators import base_name

# Rows of numbers that models read back while they are built, such as each block's rate of stochastic depth.
_ROWS = ("linspace", "logspace", "arange")
_LONGEST_ROW = 1024


class RowKeepingMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Fake tensors, of which short rows of numbers keep their values, as torch keeps those of scalars."""

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator on fake tensors; a short row is made for real as well."""
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if not (base_name(func) in _ROWS and isinstance(result, FakeTensor) and _is_short(result)):
            return result
        given = {key: value for key, value in (kwargs or {}).items() if key != "device"}
        with no_dispatch():
            row = func(*args, **given)
        return self.fake_tensor_converter.from_real_tensor(self, row, make_constant=True)


def _is_short(tensor: Tensor) -> bool:
    return tensor.ndim == 1 and len(tensor) <= _LONGEST_ROW and tensor.device.type == "cpu"


@contextmanager
def fake(mode: FakeTensorMode | None = None) -> Iterator[None]:
    """Inside, tensors get shapes but no memory: build here what only :func:`derive` is to see.

    Tensors for torch's initializers stay as they are: these may look at what they drew. ``mode``: that of
    tensors which are there already.
    """
    # To convert a module (half, to) torch swaps the values of fake parameters, unless there are weak
    # references to them. The mode itself has some, which follow the tensors wherever they go.
    unreferenced = SimpleNamespace(getweakrefs=lambda _: [])
    with ExitStack() as patches:
        for owner, name, value in (
            (torch.utils, "weakref", unreferenced),
            (FakeTensor, "__deepcopy__", _copied),
            (fake_tensor, "CONSTANT_NUMEL_LIMIT", _LONGEST_ROW),
            # The functions behind torch.nn.init's own, which other modules hold by name.
            *((nn.init, name, _left) for name in vars(nn.init) if name.startswith("_no_grad_")),
        ):
            patches.enter_context(mock.patch.object(owner, name, value, create=name == "__deepcopy__"))
        with mode or RowKeepingMode():
            yield


def _left(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    return tensor


def _copied(tensor: FakeTensor, memo: dict[int, Any]) -> Any:
    """A deep copy of ``tensor`` of the same mode: torch's own copies the mode too, and modes do not mix."""
    if id(tensor) not in memo:
        if not tensor.is_leaf:
            torch.Tensor.__deepcopy__(tensor, memo)  # type: ignore[no-untyped-call]  # raises, as for a real one
        memo[id(tensor)] = copied = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        copied.grad = copy.deepcopy(tensor.grad, memo)
        # What marks a parameter or a buffer, and what the user set.
        own = {name: value for name, value in vars(tensor).items() if name not in vars(copied)}
        vars(copied).update(copy.deepcopy(own, memo))
    return memo[id(tensor)]
