"""What ranks run for test_compared.py: some steps under a plan, recorded."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

import hocket
from hocket.graph import load_plan


def network() -> nn.Module:
    """Layers with and without parameters, and one that is sent in slices."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 3, 32, 32), torch.randint(10, (8,))


def recorded(rank: int, world: int, plan: str, timeline: str) -> int:
    """Steps that were trained; rank 0 writes ``timeline``."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = hocket.distribute(model, optimizer, plan=load_plan(plan))
    steps = 12
    for _ in range(steps):
        images, labels = batch()
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
    model.hocket.flush()
    if rank == 0:
        model.hocket.timeline.save(timeline)
    dist.barrier()  # every rank is asked for its part
    return steps
