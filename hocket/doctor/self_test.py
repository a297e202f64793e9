"""A few steps of a small model under DistributedDataParallel, the same under Hocket, and what differs.

Hocket's plan is given: an AllReduce for each parameter, the most urgent first, none awaited before the next
forward pass reads it. That is what training does beyond DistributedDataParallel, and it needs no trials.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hocket
from hocket.errors import HocketError
from hocket.graph import Plan, Reduction
from hocket.runtime.training.allreduce_handle import AllReduceHandle

T = TypeVar("T")
STEPS = 12
WIDTH = 1024
TOLERANCE = 1e-5
"""The difference, of the largest parameter, that rounding makes where more than two ranks sum up."""
_BATCH = 16
_SELF = Path("/proc/self")


class SelfTest(msgspec.Struct, frozen=True, kw_only=True):
    """Training by Hocket beside DistributedDataParallel: the difference, and what it took.

    ``difference``: the largest between their parameters and buffers after the last step, of the largest of
    them; 0 where all bits are equal. ``transfers``: how many Hocket sent in a step, of ``planned``. Peaks:
    bytes beyond what the process had before; None where the kernel does not tell.
    """

    steps: int
    size_bytes: int
    difference: float
    transfers: int
    planned: int
    peak_bytes: int | None
    ddp_peak_bytes: int | None
    open_files: int
    wall_s: float


def self_test(timeout_s: float) -> SelfTest:
    """Train both on the ranks of the default group; no wait takes longer than ``timeout_s``."""
    began_s = time.monotonic()
    _train_by_ddp(2)  # what the first steps of a process allocate is nobody's
    _handle(_train_by_hocket(2, timeout_s)).detach()
    expected, ddp_peak = peak_of(lambda: _train_by_ddp(STEPS))
    found, peak = peak_of(lambda: _train_by_hocket(STEPS, timeout_s))
    transfers = _transfers(_handle(found))
    _handle(found).detach()
    return SelfTest(
        steps=STEPS,
        size_bytes=sum(p.nbytes for p in found.parameters()),
        difference=_difference(found.state_dict(), expected.state_dict()),
        transfers=transfers,
        planned=len(_plan(found).reductions),
        peak_bytes=peak,
        ddp_peak_bytes=ddp_peak,
        open_files=len(os.listdir(_SELF / "fd")),
        wall_s=time.monotonic() - began_s,
    )


def peak_of(run: Callable[[], T]) -> tuple[T, int | None]:
    """The result of ``run``, and the bytes of memory that it took at most beyond what was taken before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    try:
        (_SELF / "clear_refs").write_text("5")  # the peak so far is forgotten
        before = _status_bytes("VmRSS")
    except OSError:
        return run(), None
    result = run()
    return result, _status_bytes("VmHWM") - before


def _status_bytes(name: str) -> int:
    lines = (_SELF / "status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _model() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Linear(256, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def _plan(model: nn.Module) -> Plan:
    """Each parameter by itself, the most urgent first."""
    reductions = [Reduction(parameters=(name,), window="forward") for name, _ in model.named_parameters()]
    return Plan(
        policy="doctor",
        model="doctor",
        architecture="allreduce",
        reductions=tuple(reductions),
        compute_order=None,
        issue="ready",
    )


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Steps as most scripts write them, each rank on batches of its own."""
    mine = torch.Generator().manual_seed(1 + dist.get_rank())
    for _ in range(steps):
        inputs, targets = (
            torch.randn(_BATCH, 256, generator=mine),
            torch.randint(10, (_BATCH,), generator=mine),
        )
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _train_by_ddp(steps: int) -> nn.Module:
    model = _model()
    optimizer = _optimizer(model)
    _train(DistributedDataParallel(model), optimizer, steps)
    return model


def _train_by_hocket(steps: int, timeout_s: float) -> nn.Module:
    model = _model()
    optimizer = _optimizer(model)
    hocket.distribute(model, optimizer, plan=_plan(model), timeout_s=timeout_s)
    _train(model, optimizer, steps)
    _handle(model).flush()
    return model


def _handle(model: nn.Module) -> AllReduceHandle:
    return cast(AllReduceHandle, model.hocket)


def _transfers(handle: AllReduceHandle) -> int:
    """The transfers that the last steps' timeline has of the rank that sent fewest; 0 but on rank 0."""
    sent: dict[str, set[str]] = {}
    dist.barrier()
    if dist.get_rank() == 0:
        timeline = handle.timeline
        for rank in range(dist.get_world_size()):
            sent[f"worker {rank}"] = set()
        for span in timeline.spans:
            if span.kind == "reduce":
                sent[timeline.lanes[span.lane].process].add(span.name)
    dist.barrier()  # ranks that are detached do not answer
    return min(map(len, sent.values()), default=0)


def _difference(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    if all(torch.equal(found[name], expected[name]) for name in expected):
        return 0.0
    largest = max(float(tensor.abs().max()) for tensor in expected.values())
    most = torch.stack([(found[name] - expected[name]).abs().max().double() for name in expected]).max()
    if not most.isfinite():
        raise HocketError(f"parameters are not finite after {STEPS} steps; report it with --json's output")
    return float(most) / largest
