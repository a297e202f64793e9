"""Ranks for test_lost_ranks.py: some have fewer batches than others, some only take long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

import hocket
from hocket.errors import HocketError
from hocket.runtime.observe import liveness
from tests.multiprocess.failure_cases import Bufferless
from tests.multiprocess.setups import Plain, batch, sgd

LONG_S = 300.0


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch(rank, step)[0]), batch(rank, step)[1]).backward()
        optimizer.step()


def fewer_batches(rank: int, world: int, after: str, steps: int, buffers: bool) -> str:
    """Rank 1 has one batch fewer, and then does what ``after`` says; the line that others get."""
    torch.manual_seed(0)
    model = Plain() if buffers else Bufferless()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan="ddp", timeout_s=LONG_S)
    started = time.monotonic()
    try:
        _train(model, optimizer, rank, steps - (rank == 1))
        model.hocket.flush()
        if rank == 1:
            _after(after)
        return "trained"
    except (HocketError, RuntimeError) as error:
        # Rank 1's own collective fails when others have gone.
        assert time.monotonic() - started < LONG_S / 2
        return f"{type(error).__name__}: {error}"


def _after(what: str) -> None:
    match what:
        case "barrier":
            dist.barrier()
        case "gather":
            dist.all_gather_object([None] * dist.get_world_size(), "done")
        case "destroy":
            dist.destroy_process_group()
            time.sleep(30)


def takes_long(rank: int, world: int) -> dict[str, list[str]]:
    """Rank 1 evaluates and saves for longer than any patience: nobody is ended, who waits is told."""
    liveness._SILENT_S, liveness._WARN_S = 1.0, 2.0
    torch.manual_seed(0)
    model = Plain()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan="ddp", timeout_s=LONG_S)
    return {
        "evaluating": _told(lambda: _evaluate(model), model, optimizer, rank),
        "saving": _told(lambda: time.sleep(6), model, optimizer, rank),
        "alone": _told(lambda: time.sleep(0), model, optimizer, rank),
    }


def _evaluate(model: nn.Module) -> None:
    ends = time.monotonic() + 6
    with torch.no_grad():
        while time.monotonic() < ends:
            model(batch(0, 0)[0])
            time.sleep(0.05)


def _told(
    work: Callable[[], None], model: nn.Module, optimizer: torch.optim.Optimizer, rank: int
) -> list[str]:
    """What is logged while rank 1 does ``work`` between steps."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hocket").addHandler(handler)
    _train(model, optimizer, rank, 4)
    if rank == 1:
        work()
    _train(model, optimizer, rank, 4)
    model.hocket.flush()
    dist.barrier()
    logging.getLogger("hocket").removeHandler(handler)
    return lines
