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
from hocket.errors import HocketError, UnknownNameError, reason
from hocket.models.target import check_target
from hocket.profiler._batch import check_targets, first_batch
from hocket.profiler._lightning import configured_optimizer, trains_itself
from hocket.profiler._step import ProfiledStep, first_lazy
from hocket.profiler.torch_step import Loss
from hocket.signals import Stop

_RETURNS = (
    "a factory returns (model, batch, loss, optimizer), loss None where the model returns its loss, or"
    " (LightningModule, batch)"
)
USUAL_BATCH = 32
"""Examples of a batch where neither the user nor the function's default says."""
# Torch's error where a lazy layer is made under fake tensors.
_NO_FAKE_LAZY_LAYER = "Creating a new Tensor subclass Uninitialized"


class StepSetup(NamedTuple):
    """All that one step needs, and its name."""

    model: nn.Module
    batch: Any
    """The batch that the model and the loss get, in a form that :func:`hocket.profile` takes."""
    loss: Loss | None
    """None where the model returns its loss."""
    optimizer: Optimizer | None
    name: str
    batch_size: int | None
    """The examples that were asked for; None where the function makes one size of its own."""


def load(target: str, batch_size: int | None = None, *, training: bool = True) -> StepSetup:
    """Build ``target``: a name of the zoo, or ``FILE.py:FACTORY``.

    FACTORY is a function that returns (model, batch, loss, optimizer), as :func:`hocket.profile` takes them,
    or a LightningModule and a batch; it is given ``batch_size`` if it has such a parameter: None for its
    default, or else :data:`USUAL_BATCH`, which models of the zoo get, too. Lazy layers get
    their shapes from one forward pass. For a derived device, call this inside :func:`hocket.profiler.fake`,
    so that the model takes no memory; it has no lazy layers then.

    Raises
    ------
    HocketError
        Saying what is wrong with the target, the file, the function or what it returned.
    """
    if batch_size is not None and batch_size < 1:
        raise HocketError(f"batch size {batch_size} is too small; a batch has at least 1 sample")
    path, colon, function_name = target.rpartition(":")
    if colon and path.endswith(".py"):
        return _call(_function(Path(path), function_name), batch_size, target, function_name)
    check_target(target)
    examples = USUAL_BATCH if batch_size is None else batch_size
    try:
        return StepSetup(*models.make(target, examples, training=training), target, examples)
    except RuntimeError as error:  # torch's, of a batch that no memory holds
        rule = f"cannot be made with a batch of {examples}: {_describe(error)}; give a smaller one"
        raise HocketError(f"{target} {rule}") from error


def check_device(device: str) -> None:
    """Refuse a device that is not there, before a model is built for it.

    Raises
    ------
    HocketError
        When it is not.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise HocketError("device 'cuda' is not there; measure on cpu, or derive a device such as v100")


def on_device(setup: StepSetup, device: str) -> StepSetup:
    """``setup`` with its model, batch and loss on "cpu" or "cuda".

    Parameters move in place, so that the optimizer keeps its own.
    """
    batch = tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, setup.batch)
    loss = setup.loss.to(device) if isinstance(setup.loss, nn.Module) else setup.loss
    return setup._replace(model=setup.model.to(device), batch=batch, loss=loss)


def _function(path: Path, name: str) -> Callable[..., Any]:
    module = _import(path)
    function = getattr(module, name, None)
    if not callable(function):
        own = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and _can_be_called(value)
        ]
        if not own:
            raise HocketError(
                f"{path} defines no function that takes nothing, or batch_size alone; define"
                f" {name or 'a factory'} in it"
            )
        raise UnknownNameError(f"{path}: function", name, own)
    found: Callable[..., Any] = function
    return found


def _can_be_called(function: Callable[..., Any]) -> bool:
    """Tell whether a call with ``batch_size``, if it has such a parameter, gives all that it needs."""
    signature = inspect.signature(function)
    try:
        signature.bind(**{name: 0 for name in ("batch_size",) if name in signature.parameters})
    except TypeError:
        return False
    return True


def _required(function: Callable[..., Any]) -> str:
    """The parameters that ``function`` needs, but for ``batch_size``."""
    taken = inspect.signature(function).parameters.values()
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = (p.name for p in taken if p.default is p.empty and p.kind not in rest)
    return " and ".join(name for name in needed if name != "batch_size")


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


def _call(factory: Callable[..., Any], batch_size: int | None, target: str, name: str) -> StepSetup:
    try:
        taken = inspect.signature(factory).parameters.get("batch_size")
        refused = "" if _can_be_called(factory) else _required(factory)
    except ValueError:  # a builtin without a signature
        taken, refused = None, ""
    if taken is None:
        batch_size = None
    elif batch_size is None:
        batch_size = taken.default if isinstance(taken.default, int) else USUAL_BATCH
    if refused:
        raise HocketError(
            f"{target} needs {refused}; a factory is called with batch_size alone, or with nothing: name its"
            " parameter batch_size, and give others a default"
        )
    try:
        returned = factory() if taken is None else factory(batch_size=batch_size)
    except Stop:
        raise
    except (Exception, SystemExit) as error:
        if _NO_FAKE_LAZY_LAYER in str(error):
            rule = "no step is derived without their sizes; give them, or measure on cpu"
            raise HocketError(f"{target} makes lazy layers, and {rule}") from error
        raise HocketError(f"{target} raised {_describe(error)}") from error
    try:
        setup = _setup(returned, name, batch_size)
        if first_lazy(setup.model):
            _give_shapes(setup)
    except HocketError as error:
        raise HocketError(f"{target}: {error}") from error.__cause__
    return setup


def _setup(returned: Any, name: str, batch_size: int | None) -> StepSetup:
    """Check what a factory returned."""
    if isinstance(returned, nn.Module) or not isinstance(returned, tuple | list):
        raise HocketError(f"returned a {type(returned).__name__}; {_RETURNS}")
    if len(returned) == 2 and isinstance(returned[0], nn.Module) and trains_itself(returned[0]):
        model, batch = returned
        loss, optimizer = None, configured_optimizer(model)
    elif len(returned) == 4:
        model, batch, loss, optimizer = returned
    else:
        kinds = ", ".join(type(each).__name__ for each in returned[:6])
        raise HocketError(f"returned {len(returned)} values ({kinds}); {_RETURNS}")
    if not isinstance(model, nn.Module):
        raise HocketError(f"returned a {type(model).__name__} as model; return a torch.nn.Module")
    if not (loss is None or callable(loss)):
        kind = type(loss).__name__
        raise HocketError(
            f"returned a {kind} as loss; loss is a function, or None where the model returns it"
        )
    if not (optimizer is None or isinstance(optimizer, Optimizer)):
        kind = type(optimizer).__name__
        raise HocketError(f"returned a {kind} as optimizer; return a torch.optim.Optimizer or None")
    batch = first_batch(batch)
    if loss is not None:
        check_targets(batch)
    return StepSetup(model, batch, loss, optimizer, name, batch_size)


def _give_shapes(setup: StepSetup) -> None:
    """Run the forward pass that lazy layers get their shapes from; the optimizer keeps its parameters."""
    ProfiledStep(model=setup.model, batch=setup.batch, loss=setup.loss, optimizer=None, inference=True).run()


def _describe(error: BaseException) -> str:
    why = reason(error)
    return f"{type(error).__name__}: {why}" if why else type(error).__name__
