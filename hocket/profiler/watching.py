"""``hocket.watch``: a step file from a training script of one's own, without a factory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from hocket.document import check_writable, is_standard_output
from hocket.errors import HocketError
from hocket.graph import StepGraph, save_step
from hocket.logs import logger, show_log
from hocket.profiler._loop import SHARDED, UNCOMPILED, Loop
from hocket.profiler._loop_steps import DISTRIBUTED, LoopProfile, LoopSteps
from hocket.profiler._step import first_lazy
from hocket.profiler._uncompiled import nothing_is_compiled
from hocket.text import duration_text

_watched: list[Watching] = []
"""The one that is under way: two would see each other's work."""


class Watching:
    """A loop whose steps are being measured.

    Attributes
    ----------
    graph
        The step, a :class:`hocket.StepGraph`; None until it is measured and written.
    error
        The :class:`hocket.HocketError` that ended the watching; None while and where there is none.

    Examples
    --------
    >>> import hocket, torch
    >>> model = torch.nn.Linear(8, 2)
    >>> watching = hocket.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), "watched.json")
    >>> watching.is_over, watching.graph, watching.error
    (False, None, None)
    >>> watching.stop()
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        steps: int,
        batch_size: int | None,
        done: Callable[[LoopProfile], None],
        failed: Callable[[HocketError], None],
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        model, optimizer = watchable(model, optimizer)
        if _watched:
            raise HocketError(
                "another loop is being watched; let it end, or stop() what hocket.watch returned for it"
            )
        self.graph: StepGraph | None = None
        self.error: HocketError | None = None
        self._done, self._failed = done, failed
        self.steps = LoopSteps(
            model,
            optimizer,
            steps=steps,
            batch_size=batch_size,
            done=self._measured,
            failed=self._went_wrong,
            progress=progress,
        )
        self._loop = Loop(model, optimizer, self.steps)
        _watched.append(self)

    @property
    def is_over(self) -> bool:
        """True if no more steps are watched."""
        return self not in _watched

    def stop(self) -> None:
        """Watch no longer, and write nothing; for use between steps."""
        if not self.is_over:
            _watched.remove(self)
        self._loop.close()

    def _measured(self, measured: LoopProfile) -> None:
        self._done(measured)  # which may fail to write
        _watched.remove(self)
        self.graph = measured.profile.graph

    def _went_wrong(self, error: Exception) -> None:
        _watched.remove(self)
        if not isinstance(error, HocketError):
            error = HocketError(f"watching the loop raised {type(error).__name__}: {error}")
        self.error = error
        self._failed(error)


def watch(
    model: nn.Module,
    optimizer: Optimizer,
    path: str | Path = "step.json",
    *,
    steps: int = 8,
    batch_size: int | None = None,
) -> Watching | None:
    """Measure the steps of a training loop as it runs, and write them to ``path``, a hocket.step/1 file.

    Call it before the loop. After three steps one is recorded; then ``steps`` sampled and as many plain ones
    are timed in turns, the file is written, and nothing stays behind. A step is what the model, its loss, the
    backward pass and the optimizer compute, and what runs between the last two, such as clipping; several
    backward passes may make one. Data loading, logging and evaluation lie outside. One line goes to the
    logger ``hocket`` (HOCKET_LOG=info shows it). An error while the loop runs is logged as a warning,
    and ends the watching alone.

    Parameters
    ----------
    model, optimizer
        As the loop trains them; a model in DistributedDataParallel is measured without its exchange.
    path
        The file to write; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard output.
    steps
        Sampled steps, at least 1: one duration of each operation from each.
    batch_size
        Examples in a step, at least 1; None: the first extent of the model's first input, of all passes
        together.

    Returns
    -------
    A handle with ``is_over``, ``graph``, ``error`` and ``stop()``, a
    :class:`hocket.profiler.watching.Watching`; None on every rank but 0.

    Raises
    ------
    HocketError
        For what cannot be watched: a compiled model, one of ``hocket.distribute``, a second loop while one is
        watched; for ``steps`` or ``batch_size`` below 1, and a path that is no place for a file.

    Examples
    --------
    >>> import hocket, torch
    >>> model = torch.nn.Linear(8, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> watching = hocket.watch(model, optimizer, "watched.json", steps=2)
    >>> for _ in range(12):
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.randint(2, (4,))).backward()
    ...     optimizer.step()
    >>> watching.graph.num_parameters
    2
    """
    show_log()
    if steps < 1 or (batch_size is not None and batch_size < 1):
        raise HocketError(f"steps={steps} and batch_size={batch_size} must each be at least 1")
    watchable(model, optimizer)
    if _rank() != 0:
        return None
    check_writable(path)
    # A script may go to another folder.
    place = path if is_standard_output(path) else Path(path).absolute()

    def done(measured: LoopProfile) -> None:
        save_step(measured.profile.graph, place)
        logger.info("%s: %s", path, described(measured))
        if measured.profile.graph.caveat:
            logger.warning("%s: %s", path, measured.profile.graph.caveat)

    def failed(error: HocketError) -> None:
        logger.warning("%s is not written, training goes on: %s", path, error)

    return Watching(model, optimizer, steps=steps, batch_size=batch_size, done=done, failed=failed)


def described(measured: LoopProfile) -> str:
    """A profile of a loop in one line."""
    graph, profile = measured.profile.graph, measured.profile
    filed, plain = (
        duration_text(float(np.median(s))) for s in (profile.operations_sum_s, profile.plain_step_s)
    )
    given = (
        "" if measured.held in (None, graph.batch_size) else f" as you say (its inputs hold {measured.held})"
    )
    return (
        f"{graph.num_operations} operations, {graph.num_parameters} parameters, batch size"
        f" {graph.batch_size}{given}; they sum to {filed} of the {plain} that a step takes unwatched"
        f" ({profile.sum_to_plain:.1%}), and the loop takes {duration_text(measured.outside_s)} more (data,"
        f" logging){profile.doubt}"
    )


def watchable(model: Any, optimizer: Any) -> tuple[nn.Module, Optimizer]:
    """The model and the optimizer within what wraps them.

    Raises
    ------
    HocketError
        For what cannot be watched.
    """
    if not isinstance(model, nn.Module):
        raise HocketError(f"model is a {type(model).__name__}; pass a torch.nn.Module")
    if not isinstance(optimizer, Optimizer):
        raise HocketError(f"optimizer is a {type(optimizer).__name__}; pass one torch.optim.Optimizer")
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):  # Accelerate's and Fabric's
        optimizer = inner
    is_eager = nothing_is_compiled()
    while isinstance(model, DistributedDataParallel) or (is_eager and hasattr(model, "_orig_mod")):
        model = model.module if isinstance(model, DistributedDataParallel) else model._orig_mod
    if hasattr(model, "hocket"):
        raise HocketError(DISTRIBUTED)
    for module in model.modules():
        kind = type(module).__name__
        is_compiled = hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        if is_compiled and not is_eager:
            raise HocketError(f"a compiled model hides its operations; {UNCOMPILED}")
        if isinstance(module, DataParallel) or kind == "FullyShardedDataParallel":
            raise HocketError(f"a model in {kind} is computed elsewhere in part; measure it without {kind}")
    if any(hasattr(parameter, "device_mesh") for parameter in model.parameters()):
        raise HocketError(SHARDED)
    if lazy := first_lazy(model):
        raise HocketError(f"'{lazy}' is lazy and has no shape yet; run a forward pass that reaches it first")
    own = {id(parameter) for parameter in model.parameters()}
    others = sum(id(p) not in own for group in optimizer.param_groups for p in group["params"])
    if others:
        raise HocketError(
            f"the optimizer has {others} parameters that {type(model).__name__} has not; pass the module that"
            " holds all of them"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise HocketError(f"{type(model).__name__} has no parameter to train; pass the model that is trained")
    return model, optimizer


def _rank() -> int:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdecimal() else 0
