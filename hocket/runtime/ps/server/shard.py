"""One server's parameters and the optimizer that updates them, each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hocket.runtime.ps.wire.layout import Frame
from hocket.runtime.ps.wire.model_spec import Spec, make_optimizer, torch_settings
from hocket.runtime.ps.wire.packing import PackedValues
from hocket.runtime.ps.wire.training_messages import Settings
from hocket.runtime.ps.wire.transport import TransportError
from hocket.runtime.training.optimizer_step import PartialStep

Gradient = torch.Tensor | None


class Shard:
    """The parameters ``places`` of ``spec``; on the first server also the state, worker 0's own.

    Not for several threads at once.
    """

    def __init__(self, spec: Spec, places: Sequence[int], *, with_state: bool) -> None:
        self.tensors = [spec.parameters[i] for i in places]
        self.parameters = [
            torch.nn.Parameter(
                torch.zeros(t.shape, dtype=t.torch_dtype), requires_grad=t.torch_dtype.is_floating_point
            )
            for t in self.tensors
        ]
        self.state_tensors = list(spec.state) if with_state else []
        self.state = [torch.zeros(t.shape, dtype=t.torch_dtype) for t in self.state_tensors]
        self._groups = [spec.groups[i] for i in places]
        self._optimizer = make_optimizer(spec, self.parameters, places)

    @torch.no_grad()
    def load(self, values: Mapping[str, torch.Tensor], others: Mapping[str, Any]) -> None:
        """Take initial values by name, and the optimizer's state as ``name/key``, which may be none.

        Raises
        ------
        TransportError
            Where they are not those of the spec.
        """
        wanted = {t.name: p for t, p in zip(self.tensors, self.parameters, strict=True)}
        everything = wanted | {t.name: s for t, s in zip(self.state_tensors, self.state, strict=True)}
        kept: dict[str, Any] = {**values, **others}
        for name, into in everything.items():
            value = kept.pop(name, None)
            if value is None or value.shape != into.shape or value.dtype != into.dtype:
                raise TransportError(f"'{name}' has no initial values of its shape and type")
            into.copy_(value)
        for key, value in kept.items():
            name, _, what = key.rpartition("/")
            if name not in wanted:
                raise TransportError(f"'{key}' is no state of a parameter of this server")
            self._optimizer.state[wanted[name]][what] = value

    @torch.no_grad()
    def load_state(self, values: Mapping[str, torch.Tensor]) -> None:
        """Take what of the state is in ``values``, by name.

        Raises
        ------
        TransportError
            Where it is none of the spec's.
        """
        into = {t.name: s for t, s in zip(self.state_tensors, self.state, strict=True)}
        for name, value in values.items():
            if name not in into or value.shape != into[name].shape or value.dtype != into[name].dtype:
                raise TransportError(f"'{name}' is no buffer of its shape and type")
            into[name].copy_(value)

    def values(self) -> dict[str, torch.Tensor]:
        """Parameters and state as they are, by name."""
        named = {t.name: p.detach() for t, p in zip(self.tensors, self.parameters, strict=True)}
        return named | {t.name: value for t, value in zip(self.state_tensors, self.state, strict=True)}

    def fill_frame(self, frame: Frame) -> None:
        """Put the present values in ``frame``."""
        for index, piece in enumerate(frame.pieces):
            frame.fill(index, self.parameters[piece.parameter])

    def update(self, gradients: Mapping[int, Gradient], settings: Settings, scale: float) -> None:
        """A step of the optimizer with each parameter's mean gradient; None: nobody used it."""
        used = {i: g for i, g in gradients.items() if g is not None}
        if not used:
            return
        rows: dict[int, list[torch.nn.Parameter]] = {}
        for i, gradient in used.items():
            p = self.parameters[i]
            p.grad = gradient.view(p.shape) if scale == 1.0 else (gradient * scale).view(p.shape)
            rows.setdefault(self._groups[i], []).append(p)
        # Settings that a worker without an optimizer leaves out are as the class has them.
        defaults = self._optimizer.defaults
        groups = {k: defaults | torch_settings(settings[k]) | {"params": own} for k, own in rows.items()}
        PartialStep(self._optimizer, groups).run()
        for i in used:
            self.parameters[i].grad = None

    def optimizer_state(self) -> PackedValues:
        """The state that the optimizer keeps of each parameter."""
        return state_of(
            self._optimizer, {t.name: p for t, p in zip(self.tensors, self.parameters, strict=True)}
        )


def state_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> PackedValues:
    """The state that ``optimizer`` keeps of each parameter, as ``name/key``: tensors, and other values."""
    tensors: dict[str, torch.Tensor] = {}
    others: dict[str, Any] = {}
    for name, p in parameters.items():
        for key, value in optimizer.state.get(p, {}).items():
            (tensors if isinstance(value, torch.Tensor) else others)[f"{name}/{key}"] = value
    return tensors, others


def mean_gradient(gradients: Sequence[Gradient]) -> Gradient:
    """The mean of what workers brought, in their order; who did not use the parameter brought zeros.

    Each is divided before it is summed up, as AllReduce has it: with two workers both agree bit by bit.
    """
    used = [g for g in gradients if g is not None]
    if not used:
        return None
    if len(gradients) == 1:
        return used[0]
    share = 1.0 / len(gradients)
    total = torch.mul(used[0], share)
    for gradient in used[1:]:
        total += gradient * share
    return total
