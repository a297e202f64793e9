"""A model and its optimizer as servers know them: names, shapes, numbers; nothing is executed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from hocket.errors import HocketError, UnknownNameError
from hocket.runtime.training.optimizer_step import PARAMETER_WISE

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bfloat16, torch.bool, torch.complex64, torch.complex128, torch.float16, torch.float32,
        torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
    )
}  # fmt: skip
# A server's gradients are dense.
_OPTIMIZERS = {cls.__name__: cls for cls in PARAMETER_WISE - {torch.optim.SparseAdam}}


class TensorSpec(msgspec.Struct, frozen=True, array_like=True):
    """A tensor's name, shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise UnknownNameError(f"the type of '{self.name}',", self.dtype, list(_DTYPES))
        if any(extent < 0 for extent in self.shape):
            raise HocketError(f"'{self.name}' has the shape {self.shape}; extents are not negative")

    @property
    def torch_dtype(self) -> torch.dtype:
        """Its type as torch has it."""
        return _DTYPES[self.dtype]

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Number of bytes."""
        return self.num_elements * self.torch_dtype.itemsize


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The trained ``parameters`` in the model's order, the group of each (``groups``, (p,)), ``optimizer`` by
    name, and ``state``: buffers and frozen parameters, which are worker 0's; the first ``buffers`` of them
    change from step to step.
    """

    parameters: tuple[TensorSpec, ...]
    groups: tuple[int, ...]
    optimizer: str
    settings: list[dict[str, Any]]
    state: tuple[TensorSpec, ...] = ()
    buffers: int = 0

    def __post_init__(self) -> None:
        if self.optimizer not in _OPTIMIZERS:
            raise UnknownNameError("optimizer", self.optimizer, sorted(_OPTIMIZERS))
        if not self.parameters or len(self.groups) != len(self.parameters):
            raise HocketError(
                f"{len(self.groups)} groups of {len(self.parameters)} parameters; give one each"
            )
        if any(not 0 <= group < len(self.settings) for group in self.groups):
            raise HocketError(
                f"a parameter is of a group that is none of the optimizer's {len(self.settings)}"
            )

        if not 0 <= self.buffers <= len(self.state):
            raise HocketError(f"{self.buffers} buffers of {len(self.state)} tensors of state; give as many")

    def difference(self, other: Spec) -> str:
        """A line on the first difference of ``other``; empty where both are of the same model."""
        pairs = (
            ("parameter", self.parameters, other.parameters),
            ("buffer or frozen parameter", self.state, other.state),
        )
        for what, mine, theirs in pairs:
            for i in range(max(len(mine), len(theirs))):
                a, b = (_tensor_text(rows[i]) if i < len(rows) else "none" for rows in (mine, theirs))
                if a != b:
                    return f"{what} {i} is {b}, others have {a}; give every worker the same model"
        if (self.optimizer, self.groups) != (other.optimizer, other.groups):
            return (
                f"the optimizer is {other.optimizer} with {len(other.settings)} groups, others have"
                f" {self.optimizer} with {len(self.settings)}; give every worker the same"
            )
        return ""


def spec_of(
    parameters: Mapping[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    buffers: Mapping[str, torch.Tensor],
    frozen: Mapping[str, torch.Tensor],
) -> Spec:
    """The spec of ``parameters``, which are those of ``optimizer``, by their names.

    Raises
    ------
    HocketError
        For an optimizer that is not torch's own, or whose settings are no plain numbers.
    """
    name = type(optimizer).__name__
    if type(optimizer) is not _OPTIMIZERS.get(name):
        raise HocketError(
            f"a server cannot run {name}; it runs torch.optim's {', '.join(sorted(_OPTIMIZERS))}"
        )
    group_of = {p: k for k, group in enumerate(optimizer.param_groups) for p in group["params"]}
    return Spec(
        parameters=tensor_specs(parameters),
        groups=tuple(group_of[p] for p in parameters.values()),
        optimizer=name,
        settings=settings_of(optimizer),
        state=(*tensor_specs(buffers), *tensor_specs(frozen)),
        buffers=len(buffers),
    )


def tensor_specs(tensors: Mapping[str, torch.Tensor]) -> tuple[TensorSpec, ...]:
    """A row for each of the tensors."""
    return tuple(
        TensorSpec(name, tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in tensors.items()
    )


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The present settings of each group beside its parameters, as plain numbers and texts.

    Raises
    ------
    HocketError
        For a setting that is neither.
    """
    return [
        {key: _plain(key, value) for key, value in group.items() if key not in ("params", "param_names")}
        for group in optimizer.param_groups
    ]


def make_optimizer(
    spec: Spec, parameters: Sequence[torch.nn.Parameter], places: Sequence[int]
) -> torch.optim.Optimizer:
    """The optimizer of some of the spec's parameters; ``places``: which of them these are."""
    groups: dict[int, list[torch.nn.Parameter]] = {}
    for p, place in zip(parameters, places, strict=True):
        groups.setdefault(spec.groups[place], []).append(p)
    rows = [torch_settings(spec.settings[k]) | {"params": members} for k, members in groups.items()]
    made: torch.optim.Optimizer = _OPTIMIZERS[spec.optimizer](rows)
    return made


def torch_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as optimizers take them: what was a tuple is one again."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}


def _plain(key: str, value: Any) -> Any:
    # Schedules compute with numpy, whose numbers JSON does not know.
    if isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        value = value.item()
    if isinstance(value, tuple | list):
        return [_plain(key, each) for each in value]
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    raise HocketError(f"the optimizer's '{key}' is {value!r}; servers take finite numbers and texts")


def _tensor_text(tensor: TensorSpec) -> str:
    return f"{tensor.name} {tensor.shape} {tensor.dtype}"
