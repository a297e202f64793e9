"""From what a user names to what a step needs: a model of the zoo, or a function in a file of theirs."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from hocket import models
from hocket.errors import HocketError, UnknownNameError
from hocket.profiler._step import Step, first_lazy
from hocket.profiler.torch_step import Loss
from hocket.stops import Stop

_RETURNS = "a factory returns (model, batch, loss, optimizer)"
# What torch says where a lazy layer is made under fake tensors.
_NO_FAKE_LAZY_LAYER = "Creating a new Tensor subclass Uninitialized"


class Setup(NamedTuple):
    """What one step needs, and what to call it."""

    model: nn.Module
    batch: Any
    """(inputs, targets)."""
    loss: Loss
    optimizer: Optimizer | None
    name: str
    takes_batch_size: bool = True
    """Whether the batch is of the size that was asked for; else the function makes one size of its own."""


def load(target: str, batch_size: int, *, training: bool = True) -> Setup:
    """Build ``target``: a name of the zoo, or ``FILE.py:FACTORY``.

    FACTORY is a function that returns (model, batch, loss, optimizer) with batch = (inputs, targets); it is
    given ``batch_size`` if it has such a parameter. Lazy layers get their shapes from one forward pass. For a
    derived device, call this inside :func:`hocket.profiler.fake`, so that the model takes no memory; it
    has no lazy layers then.

    Raises
    ------
    HocketError
        Saying what is wrong with the target, the file, the function or what it returned.
    """
    if batch_size < 1:
        raise HocketError(f"batch size {batch_size} is too small; a batch has at least 1 sample")
    path, colon, function_name = target.rpartition(":")
    if colon and path.endswith(".py"):
        return _call(_function(Path(path), function_name), batch_size, target, function_name)
    if target.endswith(".py"):
        raise HocketError(f"'{target}' names no function; write {target}:FACTORY")
    if target not in models.names():
        raise UnknownNameError("model", target, (*models.names(), "FILE.py:FACTORY"))
    try:
        return Setup(*models.make(target, batch_size, training=training), target)
    except RuntimeError as error:  # torch's, of a batch that no memory holds
        rule = f"cannot be made with a batch of {batch_size}: {_describe(error)}; give a smaller one"
        raise HocketError(f"{target} {rule}") from error


def on_device(setup: Setup, device: str) -> Setup:
    """``setup`` with its model, batch and loss on "cpu" or "cuda".

    Parameters move in place, so that the optimizer keeps its own.

    Raises
    ------
    HocketError
        When the device is not there.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise HocketError("device 'cuda' is not there; measure on cpu, or derive a device such as v100")
    batch = tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, setup.batch)
    loss = setup.loss.to(device) if isinstance(setup.loss, nn.Module) else setup.loss
    return setup._replace(model=setup.model.to(device), batch=batch, loss=loss)


def _function(path: Path, name: str) -> Callable[..., Any]:
    module = _import(path)
    functions = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    function = getattr(module, name, None)
    if not callable(function):
        if not functions:
            raise HocketError(f"{path} defines no functions; define {name or 'a factory'} in it")
        raise UnknownNameError(f"{path}: function", name, functions)
    found: Callable[..., Any] = function
    return found


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise HocketError(f"{path} is not a file; give the path of a Python file as FILE.py:FACTORY")
    module_name = f"_hocket_factory_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and pickling look their module up there
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # as for a script, so that the file finds its neighbours
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = f"{error.filename or path}, line {error.lineno}"
        raise HocketError(f"{where}: {error.msg}; mend the file's syntax") from error
    except Stop:
        raise
    except (Exception, SystemExit) as error:
        raise HocketError(f"importing {path} raised {_describe(error)}") from error
    finally:
        sys.path.remove(folder)
    return module


def _call(factory: Callable[..., Any], batch_size: int, target: str, name: str) -> Setup:
    try:
        takes_batch_size = "batch_size" in inspect.signature(factory).parameters
    except ValueError:  # a builtin without a signature
        takes_batch_size = False
    try:
        returned = factory(batch_size=batch_size) if takes_batch_size else factory()
    except Stop:
        raise
    except (Exception, SystemExit) as error:
        if _NO_FAKE_LAZY_LAYER in str(error):
            rule = "no step is derived without their sizes; give them, or measure on cpu"
            raise HocketError(f"{target} makes lazy layers, and {rule}") from error
        raise HocketError(f"{target} raised {_describe(error)}") from error
    if not isinstance(returned, tuple | list):
        raise HocketError(f"{target} returned a {type(returned).__name__}; {_RETURNS}")
    if len(returned) != 4:
        raise HocketError(f"{target} returned {len(returned)} values; {_RETURNS}")
    model, batch, loss, optimizer = returned
    if not isinstance(model, nn.Module):
        raise HocketError(f"{target} returned a {type(model).__name__} as model; return a torch.nn.Module")
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        raise HocketError(f"{target} returned a batch that is no pair; batch is (inputs, targets)")
    if not callable(loss):
        raise HocketError(f"{target} returned a {type(loss).__name__} as loss; loss is a function")
    if not (optimizer is None or isinstance(optimizer, Optimizer)):
        kind = type(optimizer).__name__
        raise HocketError(f"{target} returned a {kind} as optimizer; return a torch.optim.Optimizer or None")
    setup = Setup(model, batch, loss, optimizer, name, takes_batch_size)
    if first_lazy(model):
        _give_shapes(setup)
    return setup


def _give_shapes(setup: Setup) -> None:
    """Run the forward pass that lazy layers get their shapes from; the optimizer keeps its parameters."""
    inputs, targets = setup.batch
    Step(
        model=setup.model,
        inputs=inputs,
        targets=targets,
        loss=setup.loss,
        optimizer=None,
        inference=True,
    ).run()


def _describe(error: BaseException) -> str:
    first_line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
