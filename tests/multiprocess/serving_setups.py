"""Models, loops and comparisons of the tests that train with parameter servers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hocket.launch import Rule
from tests.multiprocess.setups import batch
from tests.serving import Served

STEPS = 20
SYNC2 = Rule(workers=2)

Make = Callable[[nn.Module], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.05),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
}


class Layers(nn.Module):
    """Without BatchNorm: what two workers compute is what one computes of both batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 16), nn.Tanh(), nn.Linear(16, 5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def made(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer.zero_grad()
    functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def both(number: int, workers: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """What the workers' batches of a step are together."""
    batches = [batch(worker, number) for worker in range(workers)]
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def alone(optimize: Make, steps: int = STEPS, workers: int = 2, make: Any = Layers) -> nn.Module:
    """Trained in one process on all batches."""
    model = made(make)
    optimizer = optimize(model)
    for number in range(steps):
        step(model, optimizer, *both(number, workers))
    return model


def trained(
    job: Served, models: list[nn.Module], optimize: Make, steps: int = STEPS, **options: Any
) -> list[dict[str, torch.Tensor]]:
    """Each worker's state dict after ``steps``; ``models``: one a worker."""

    def work(worker: int) -> dict[str, torch.Tensor]:
        model = models[worker]
        optimizer = optimize(model)
        job.train(worker, model, optimizer, **options)
        for number in range(steps):
            step(model, optimizer, *batch(worker, number))
        state = copy.deepcopy(model.state_dict())
        model.hocket.detach()
        return state

    return job.on_workers(work)


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float = 1e-6) -> bool:
    return all(torch.allclose(a[k], b[k], rtol=0, atol=tolerance) for k in a)


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[k], b[k]) for k in a)
