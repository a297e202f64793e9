"""The step that is profiled, run exactly as a training script runs it, and put back as if it never had."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from hocket.errors import HocketError, reason
from hocket.graph import Phase
from hocket.profiler._batch import (
    Arguments,
    arguments,
    check_targets,
    first_batch,
    first_extent,
    returned_loss,
)
from hocket.profiler._lightning import outputs_of_own_step, trains_itself

Enter = Callable[[Phase, str], None]
"""Called before each part of a step with its phase and the path of what runs outside every module."""


@dataclass(frozen=True, kw_only=True)
class ProfiledStep:
    """A training step, or with ``inference`` a forward pass without gradients."""

    model: nn.Module
    batch: Any
    """As :mod:`hocket.profiler._batch` takes it, no loader."""
    loss: Callable[[Any, Any], Tensor] | None
    """None: the model returns its loss."""
    optimizer: Optimizer | None
    inference: bool

    @property
    def roots(self) -> dict[str, nn.Module]:
        """The modules that take part, by the prefix of their parameters' names."""
        return {"": self.model, "loss": self.loss} if isinstance(self.loss, nn.Module) else {"": self.model}

    def parameters(self) -> dict[str, nn.Parameter]:
        """Every parameter once, tied ones under their first name."""
        return parameters_of(self.roots)

    def batch_size(self) -> int:
        """The first extent of the batch's first tensor; HocketError where there is none."""
        extent = first_extent(self.batch)
        if extent is None:
            raise HocketError("the batch holds no tensor with a batch dimension; pass batch_size=...")
        return extent

    def run(self, enter: Enter = lambda phase, path: None) -> None:
        """Run the step once: forward, loss, backward, update, gradients set to None.

        Raises
        ------
        HocketError
            When the step raises; its own exception is the cause.
        """
        part = "forward pass"
        try:
            enter(Phase.FORWARD, "")
            arguments = self._arguments()
            if self.inference:
                with torch.no_grad():
                    self.model(*arguments.args, **arguments.kwargs)
                return
            if self.loss is None and trains_itself(self.model):
                outputs = outputs_of_own_step(self.model, self.batch)
            else:
                outputs = self.model(*arguments.args, **arguments.kwargs)
            part = "loss"
            enter(Phase.FORWARD, "loss")
            loss = returned_loss(outputs) if self.loss is None else self.loss(outputs, arguments.targets)
            del outputs
            _require_scalar(loss)
            part = "backward pass"
            enter(Phase.BACKWARD, "")
            loss.backward()  # type: ignore[no-untyped-call]
            if self.optimizer is not None:
                part = "optimizer"
                enter(Phase.UPDATE, "")
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            for root in self.roots.values():
                root.zero_grad(set_to_none=True)
        except HocketError:
            raise
        except Exception as error:
            _refuse(part, error)

    def _arguments(self) -> Arguments:
        return arguments(self.batch, with_targets=self.inference or self.loss is not None)


def parameters_of(roots: Mapping[str, nn.Module]) -> dict[str, nn.Parameter]:
    """Every parameter of ``roots`` once, tied ones under their first name."""
    named = (pair for prefix, root in roots.items() for pair in root.named_parameters(prefix=prefix))
    first_names: dict[int, tuple[str, nn.Parameter]] = {}
    for name, parameter in named:
        first_names.setdefault(id(parameter), (name, parameter))
    return dict(first_names.values())


def make_step(
    model: nn.Module,
    batch: Any,
    loss: Callable[[Any, Any], Tensor] | None,
    optimizer: Optimizer | None,
    inference: bool = False,
) -> ProfiledStep:
    """The step of what a caller hands in, as :func:`hocket.profile` takes it, checked.

    Of a loader the first batch is taken.

    Raises
    ------
    HocketError
        For arguments that make no step; it says what to hand in instead.
    """
    if not isinstance(model, nn.Module):
        raise HocketError(f"model is a {type(model).__name__}; pass a torch.nn.Module")
    if hasattr(model, "_orig_mod"):
        raise HocketError("a compiled model hides its operations; profile the module given to torch.compile")
    if not (inference or loss is None or callable(loss)):
        kind = type(loss).__name__
        raise HocketError(f"loss is a {kind}; pass a function of (outputs, targets), or None")
    if not (optimizer is None or isinstance(optimizer, Optimizer)):
        raise HocketError(f"optimizer is a {type(optimizer).__name__}; pass a torch.optim.Optimizer or None")
    if lazy := first_lazy(model):
        raise HocketError(f"'{lazy}' is lazy and has no shape yet; run a forward pass that reaches it first")
    batch = first_batch(batch)
    if not inference and loss is not None:
        check_targets(batch)
    return ProfiledStep(
        model=model,
        batch=batch,
        loss=loss,
        optimizer=None if inference else optimizer,
        inference=inference,
    )


def first_lazy(model: nn.Module) -> str:
    """The name of a parameter or buffer that gets its shape from the first forward pass; "" for none."""
    named = (*model.named_parameters(), *model.named_buffers())
    return next((name for name, tensor in named if is_lazy(tensor)), "")


def _require_scalar(loss: Any) -> None:
    if not isinstance(loss, Tensor):
        raise HocketError(f"loss returned a {type(loss).__name__}; it must return a scalar tensor")
    if loss.numel() != 1:
        raise HocketError(f"loss returned a tensor of shape {list(loss.shape)}; it must return a scalar")


def _refuse(part: str, error: Exception) -> NoReturn:
    raise HocketError(f"the step's {part} raised {type(error).__name__}: {reason(error)}") from error


@contextmanager
def unchanged(step: ProfiledStep) -> Iterator[None]:
    """Let steps run and put everything back: a profiled model is bit for bit the one that was handed in.

    Put back are parameters, their gradients, buffers, training flags, the optimizer's state, groups and
    attributes, and the random number generators of Python, NumPy, the CPU and CUDA. Not put back is what a
    module keeps in attributes of its own. Costs a copy of parameters, buffers and optimizer state meanwhile.
    Inference runs in evaluation mode, training in whatever mode the modules are in.
    """
    modules = [module for root in step.roots.values() for module in root.modules()]
    tensors: list[Tensor] = list(step.parameters().values())
    if step.optimizer is not None:
        tensors += [tensor for group in step.optimizer.param_groups for tensor in group["params"]]
    gradients = [(tensor, tensor.grad) for tensor in tensors]
    values = [(tensor.data, tensor.data.clone()) for tensor in tensors]
    buffers = [(module, dict(module._buffers)) for module in modules]
    values += [(b.data, b.data.clone()) for _, held in buffers for b in held.values() if b is not None]
    flags = [(module, module.training) for module in modules]
    try:
        with _generators_unchanged(), _optimizer_unchanged(step.optimizer):
            for tensor in tensors:
                tensor.grad = None
            if step.inference:
                step.model.eval()
            yield
    finally:
        for module, training in flags:
            module.training = training
        for module, held in buffers:
            module._buffers.clear()
            module._buffers.update(held)
        for tensor, value in values:
            tensor.copy_(value)
        for tensor, gradient in gradients:
            tensor.grad = gradient


@contextmanager
def _optimizer_unchanged(optimizer: Optimizer | None) -> Iterator[None]:
    """Let an optimizer work on copies of its state and groups."""
    if optimizer is None:
        yield
        return
    attributes = dict(vars(optimizer))
    parameters = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    optimizer.state = defaultdict(
        dict, {p: copy.deepcopy(s, dict(parameters)) for p, s in optimizer.state.items()}
    )
    optimizer.param_groups = [
        {key: value if key == "params" else copy.deepcopy(value) for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    try:
        yield
    finally:
        vars(optimizer).clear()
        vars(optimizer).update(attributes)


@contextmanager
def _generators_unchanged() -> Iterator[None]:
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        # Asking a GPU that nothing has used yet for its generator would start it.
        gpus = range(torch.cuda.device_count()) if _cuda_runs() else ()
        with torch.random.fork_rng(devices=gpus):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def _cuda_runs() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
