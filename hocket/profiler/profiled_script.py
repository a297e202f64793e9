"""A training script run as it is, for the steps of the first optimizer that steps in it."""

from __future__ import annotations

import builtins
import gc
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from hocket.errors import HocketError, reason
from hocket.ports import free_port
from hocket.profiler._loop import MOST_UNSEEN, unseen
from hocket.profiler._loop_steps import LoopProfile, needed_steps
from hocket.profiler._uncompiled import uncompiled
from hocket.profiler.watching import Watching
from hocket.signals import Stop

_LEFT_OUT = "torch.compile is left out: operations are seen, and take longer, uncompiled"
_CAVEAT = (
    "the step was measured without the script's torch.compile: as a rule computing is too long, so that"
    " examples/s and the network's share are too small"
)
_LIGHTNING = ("lightning.", "lightning_fabric.")
_WRAPPERS = ("lightning.", "pytorch_lightning.", "accelerate.", "torch.")


class _Enough(SystemExit):
    """Ends a script as its own ``sys.exit()`` would."""


def profile_script(
    path: Path,
    arguments: Sequence[str],
    *,
    steps: int,
    batch_size: int | None,
    tell: Callable[[str], None],
    progress: Callable[[int, int], object] | None = None,
) -> LoopProfile:
    """Run a script as ``python path arguments`` does, alone as torchrun would, until its steps are measured.

    The first optimizer that steps is watched, in this process, with the module that holds its parameters.
    Where no RANK is set, the environment says that this is the one rank of a job. Then the script is ended.
    Its ``torch.compile`` does nothing, which the step has as its caveat. ``tell`` gets a line on that, and
    one on what is watched; ``progress`` gets between steps how many were seen and are needed.

    Raises
    ------
    HocketError
        When the script ends or raises before that, with how many steps were seen, or cannot be watched.
    """
    watcher = _FirstOptimizer(steps, batch_size, tell, progress)
    ended, alone = "", "RANK" not in os.environ
    left_out: list[str] = []

    def leave_out() -> None:
        if not left_out:
            left_out.append(_LEFT_OUT)
            tell(_LEFT_OUT)

    with _as_rank(), _as_main(path, arguments) as run, uncompiled(leave_out), watcher:
        try:
            run()
        except (_Enough, Stop) as stop:
            if isinstance(stop, Stop):
                raise
        except SystemExit as asked:
            ended = f" with status {asked.code}" if asked.code else ""
        except Exception as error:
            if watcher.measured is None and watcher.error is None:
                together = _together(path, error) if alone else ""
                if together:
                    raise HocketError(f"{_raised(path, error).rstrip('.')}; {together}") from error
                raise HocketError(f"{_raised(path, error)}, {watcher.so_far}") from error
    if watcher.error is not None:
        raise HocketError(f"{path}: {watcher.error}")
    if watcher.measured is None:
        raise HocketError(f"{path} ended{ended}, {watcher.so_far}")
    if left_out:
        return replace(watcher.measured, profile=watcher.measured.profile.with_caveats(_CAVEAT))
    return watcher.measured


class _FirstOptimizer:
    """Waits for an optimizer to step, and watches it from the next forward pass on."""

    def __init__(
        self,
        steps: int,
        batch_size: int | None,
        tell: Callable[[str], None],
        progress: Callable[[int, int], object] | None,
    ) -> None:
        self._progress = progress
        self.measured: LoopProfile | None = None
        self.error: HocketError | None = None
        self._steps, self._batch_size, self._tell = steps, batch_size, tell
        self._optimizer: Optimizer | None = None
        self._watching: Watching | None = None
        self._unseen = 0

    def __enter__(self) -> None:
        self._handles = [
            register_optimizer_step_post_hook(self._stepped),
            register_module_forward_pre_hook(self._called),
        ]

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()
        if self._watching is not None:
            self._watching.stop()

    @property
    def so_far(self) -> str:
        """A clause on the number of steps that were seen, and that are needed."""
        if self._optimizer is None:
            return (
                "and no optimizer stepped in this process (others that it starts are not seen): give a script"
                " that trains when it is run, or FILE.py:FACTORY"
            )
        seen, needed = self._with_first(0 if self._watching is None else self._watching.steps.num_seen)
        return (
            f"after {seen} of {needed} optimizer steps that are needed; let it train longer, or lower --steps"
        )

    def _with_first(self, watched: int) -> tuple[int, int]:
        """The script's steps, seen and needed: those watched, and the first, which shows what to watch."""
        return watched + 1, needed_steps(self._steps) + 1

    def _tell_progress(self, watched: int, _needed: int) -> None:
        if self._progress is not None:
            self._progress(*self._with_first(watched))

    def _stepped(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._optimizer is None:
            self._optimizer = optimizer
        if self._watching is None and optimizer is self._optimizer:
            self._unseen += 1
            if self._unseen > MOST_UNSEEN:
                self._fail(HocketError(unseen(type(optimizer).__name__)))

    def _called(self, _module: nn.Module, _args: Any) -> None:
        if torch.compiler.is_dynamo_compiling():
            return
        # Not where the optimizer steps: torch would not bear more hooks on optimizers there.
        if self._optimizer is None or self._watching is not None or self.error is not None:
            return
        try:
            model = model_of(self._optimizer)
            self._watching = Watching(
                model,
                self._optimizer,
                steps=self._steps,
                batch_size=self._batch_size,
                done=self._done,
                failed=self._fail,
                progress=self._tell_progress,
            )
        except HocketError as error:
            self._fail(error)
        self._tell(f"measuring the {type(self._optimizer).__name__} of a {type(model).__name__}")

    def _done(self, measured: LoopProfile) -> None:
        self.measured = measured
        raise _Enough

    def _fail(self, error: HocketError) -> None:
        self.error = error
        raise _Enough


def model_of(optimizer: Optimizer) -> nn.Module:
    """The module that holds the parameters of ``optimizer``: the outermost of those with the fewest others.

    Raises
    ------
    HocketError
        Where no module holds them all.
    """
    wanted = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    holding: list[tuple[int, int, nn.Module]] = []
    for candidate in gc.get_objects():
        # Not isinstance: proxies answer that they are what they stand for.
        if not issubclass(type(candidate), nn.Module) or "_modules" not in vars(candidate):
            continue
        # Every module of the process comes by, with methods of its own that may do more than tell.
        held = {id(parameter) for _, parameter in nn.Module.named_parameters(candidate)}
        if wanted <= held and not _is_wrapper(candidate):
            holding.append((len(held), -sum(1 for _ in nn.Module.modules(candidate)), candidate))
    if not holding:
        raise HocketError(
            f"no module holds all {len(wanted)} parameters of the first optimizer that steps, a"
            f" {type(optimizer).__name__}; put what it trains into one module"
        )
    return min(holding, key=lambda entry: entry[:2])[2]


def _is_wrapper(module: nn.Module) -> bool:
    """True if a framework made it around a user's module, other than to compile it."""
    kind = type(module)
    if isinstance(module, DistributedDataParallel):
        return True
    return kind.__name__.startswith("_") and kind.__module__.startswith(_WRAPPERS)


@contextmanager
def _as_rank() -> Iterator[None]:
    """Say in the environment that this is the one rank of a job, unless it says which it is."""
    if "RANK" in os.environ:
        yield
        return
    alone = {
        **{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))},
        # Without it Lightning takes LOCAL_RANK for a launcher of several ranks, and waits for the others.
        "TORCHELASTIC_RUN_ID": "none",  # torchrun's own, where it is given none
    }
    before = {name: os.environ.get(name) for name in alone}
    os.environ.update(alone)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _as_main(path: Path, arguments: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Yield a call that runs ``path`` as the main module, as Python would."""
    if not path.is_file():
        raise HocketError(f"{path} is not a file; give the path of a Python file")
    absolute = os.path.abspath(path)
    try:
        with io.open_code(absolute) as file:
            code = compile(file.read(), absolute, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"{error.filename or path}, line {error.lineno}"
        raise HocketError(f"{where}: {error.msg}; mend the file's syntax") from error
    except (OSError, ValueError) as error:
        raise HocketError(f"{path} cannot be run: {error}; give the path of a Python file") from error
    module = ModuleType("__main__")
    module.__dict__.update(
        __builtins__=builtins,
        __file__=absolute,
        __loader__=SourceFileLoader("__main__", absolute),
        __cached__=None,
    )
    before = sys.modules["__main__"], sys.argv, sys.path[:]
    sys.modules["__main__"], sys.argv = module, [str(path), *arguments]
    sys.path[0] = os.path.dirname(os.path.realpath(absolute))
    try:
        yield lambda: exec(code, module.__dict__)
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before


def _raised(path: Path, error: Exception) -> str:
    """An exception of a script in one line, with its last line in that file."""
    absolute = os.path.abspath(path)
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == absolute
    ]
    why = reason(error)
    where = f"{path}, line {lines[-1]}" if lines else str(path)
    return f"{where}, raised {type(error).__name__}{': ' if why else ''}{why}"


def _together(path: Path, error: Exception) -> str:
    """The ways to profile a script where Lightning refuses to train on one process of several; else ""."""
    innermost = list(traceback.walk_tb(error.__traceback__))[-1][0]
    module, asked = str(innermost.f_globals.get("__name__")), innermost.f_locals
    if innermost.f_code.co_name != "validate_settings" or not module.startswith(_LIGHTNING):
        return ""
    if asked.get("num_nodes") != 1:
        return "a script runs here as the only rank: give devices=1, num_nodes=1"
    return (
        "a script runs here as the only rank: give devices=1, or start all ranks:"
        f" torchrun --nproc-per-node {asked.get('num_devices')} --no-python hocket profile {path}"
    )
