"""What ranks run for test_gpu.py."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hocket
from tests.multiprocess.delayed_cases import HABITS, step_by_habit
from tests.multiprocess.parity_cases import parity
from tests.multiprocess.twins import sliced_plan

_DEVICE = torch.device("cuda", 0)
_WIDTH, _LAYERS = 2048, 12


def suite(rank: int, world: int) -> dict[str, list[str]]:
    """What a user of DistributedDataParallel has, on the GPU."""
    return parity(rank, world)


def _layers(width: int, layers: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]).to(
        _DEVICE
    )


def settled_steps(rank: int, world: int) -> str:
    """The synchronisation of the host that a step has whose plan stays; empty: none."""
    for habit in HABITS:
        model = _layers(6, 3)
        model[1] = nn.BatchNorm1d(6, device=_DEVICE)
        model.add_module("spare", nn.Linear(6, 6, device=_DEVICE))
        model.forward = lambda x, model=model: model[2](model[1](model[0](x)))  # type: ignore[method-assign]
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        hocket.distribute(model, optimizer, plan=sliced_plan(model, "ready"))
        batches = [torch.randn(3, 6, device=_DEVICE) for _ in range(9)]
        try:
            for step, x in enumerate(batches):
                torch.cuda.set_sync_debug_mode("error" if step >= 6 else "default")
                step_by_habit(habit, model, optimizer, x)
        except RuntimeError as error:
            return f"{habit}: {error}"
        finally:
            torch.cuda.set_sync_debug_mode("default")
        model.hocket.detach()
    return ""


def profiled(rank: int, world: int) -> dict[str, float | str]:
    """The parts of steps as a share of them, by what the host waits for, and whose clock they are by."""
    model = _layers(_WIDTH, _LAYERS)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    hocket.distribute(model, optimizer, plan="auto")
    handle, recorder = model.hocket, model.hocket._training.recorder
    steps = settled = 0
    while settled < 10 and steps < 100:
        settled, steps = settled + handle.settled, steps + (handle.phase != "planning")
        if settled == 2:
            torch.cuda.synchronize()
            started_s = time.perf_counter()
        optimizer.zero_grad()
        model(torch.ones(64, _WIDTH, device=_DEVICE)).square().mean().backward()
        optimizer.step()
    handle.flush()
    torch.cuda.synchronize()
    step_s = (time.perf_counter() - started_s) / (settled - 1)
    recorder.flush()
    count, first, spans = recorder.last_steps(8)
    last = list(recorder.begins)[-1]
    parts_s = sum(min(e, last) - max(s, first) for kind, _, s, e in spans if kind != "reduce")
    clock = handle.explain().splitlines()[0]
    handle.detach()
    return {"parts": parts_s / (last - first), "step": (last - first) / count / step_s, "clock": clock}


def peaks(rank: int, world: int) -> tuple[int, int, int]:
    """Bytes of GPU memory at most beyond the start: ours, DDP's with views, and two of our slices."""
    ours = _peak(lambda model, optimizer: hocket.distribute(model, optimizer, plan=sliced_plan(model))[0])
    ddp = _peak(lambda model, _: DistributedDataParallel(model, gradient_as_bucket_view=True))
    return ours, ddp, 2 * _WIDTH * _WIDTH * 4 * 2 // 3


def _peak(wrap: Callable[[nn.Module, torch.optim.Optimizer], nn.Module]) -> int:
    model = _layers(_WIDTH, _LAYERS)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    wrapped = wrap(model, optimizer)
    for _ in range(8):
        optimizer.zero_grad()
        wrapped(torch.ones(2, _WIDTH, device=_DEVICE)).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    dist.barrier()
    if hasattr(model, "hocket"):
        model.hocket.detach()
    return torch.cuda.max_memory_allocated() - before
