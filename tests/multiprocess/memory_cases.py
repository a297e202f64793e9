"""The memory of a training beyond what its process had, at its peak."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 16  # learning, profiling, planning and some steps by the plan
WIDTH, LAYERS = 1600, 10  # 98 MiB


def peak_mib(rank: int, _: int, plan: str) -> float:
    """With ``plan``; without, of DistributedDataParallel with gradients that are views of its buckets."""
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model: nn.Module = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9)
    x = torch.randn(2, WIDTH)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
    before = _peak_mib()
    if plan:
        import hocket

        model, optimizer = hocket.distribute(model, optimizer, plan=plan, timeout_s=120)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    for _step in range(STEPS):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    if plan:
        assert model.hocket.plan.policy == plan
        model.hocket.flush()
    return _peak_mib() - before


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
