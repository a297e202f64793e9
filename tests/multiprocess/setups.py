"""The models and loops that ranks train in tests."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from hocket.tuner.planning_process import PlanningProcess
from tests.multiprocess.twins import Twins

STEPS = 10


class Small(nn.Module):
    """Convolution, BatchNorm, attention with functional reads, shared, frozen and never used parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.first = nn.Linear(8, 8)
        self.again = nn.Linear(8, 8)
        self.again.weight = self.first.weight
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.unused = nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x)).relu().flatten(2).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = self.frozen(self.first(x)).relu()
        return self.head(self.again(x).mean(1))


class Plain(nn.Module):
    """Three layers with BatchNorm, everything used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 3),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(216, 16),
            nn.Linear(16, 5),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def batch(rank: int, step: int, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(size, 3, 8, 8, generator=generator), torch.randint(0, 5, (size,), generator=generator)


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(trainable(model), lr=0.05, momentum=0.9)


def plan_at_once() -> None:
    """From now on steps wait for plans, so that how many steps a choice takes does not depend on a clock."""
    PlanningProcess.is_over = lambda self: True  # type: ignore[method-assign]


def train(twins: Twins, rank: int, steps: int = STEPS, after: Callable[..., None] | None = None) -> list[str]:
    """The usual loop on both; ``after(model, optimizer)`` runs between backward and step."""
    for step in range(steps):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            if after is not None:
                after(model, optimizer)
            optimizer.step()
    return twins.differences()


# A case for each thing that a user of DDP has.
