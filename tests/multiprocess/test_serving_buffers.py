"""Buffers and frozen parameters with parameter servers, whatever their memory is like."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hocket.launch import Rule
from tests.multiprocess.serving_setups import OPTIMIZERS, SYNC2, equal, step
from tests.multiprocess.setups import batch
from tests.serving import served

pytestmark = pytest.mark.slow


class Odd(nn.Module):
    """Elements that share memory, in buffers and in a frozen parameter, and values that views conjugate."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 5)
        turned = torch.polar(torch.ones(4), torch.arange(4.0) + first)
        self.register_buffer("mean", torch.full((1,), first).expand(5))
        self.register_buffer("table", torch.arange(3.0).view(3, 1).add(first).expand(3, 2))
        self.register_buffer("turned", turned.conj())
        self.register_buffer("slope", turned.clone().conj().imag)
        self.register_buffer("strided", torch.arange(12.0).add(first).view(3, 4).t()[::2])
        self.scale = nn.Parameter(torch.full((1,), first).expand(5), requires_grad=False)
        self.spread = nn.Parameter(turned.clone().conj(), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.flatten(1)) * self.scale + self.mean


def test_buffers_whose_elements_share_memory_and_views_that_conjugate() -> None:
    models = [Odd(1.0 + worker) for worker in range(2)]
    expected = {k: v.clone() for k, v in models[0].state_dict().items() if not k.startswith("layer")}
    assert len(expected) == 7

    def work(worker: int) -> dict[str, torch.Tensor]:
        model = models[worker]
        optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.05)
        job.train(worker, model, optimizer)
        for number in range(4):
            step(model, optimizer, *batch(worker, number))
        state = {k: v.clone() for k, v in model.state_dict().items()}
        model.hocket.detach()
        return state

    with served(SYNC2, servers=2) as job:
        states = job.on_workers(work)
    assert equal(*states)
    assert equal(expected, states[1])


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 5)
        self.register_buffer("steps", torch.zeros(1).expand(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps[:1].add_(1.0)
        return self.layer(x.flatten(1))


def test_what_changes_in_shared_memory_is_worker_0s_in_each_step() -> None:
    def work(worker: int) -> list[float]:
        model = Counting()
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(4):
            if worker:
                model.steps[:1].zero_()
            step(model, optimizer, *batch(worker, number))
        with torch.no_grad():
            model.hocket.flush()
        kept = model.steps.tolist()
        model.hocket.detach()
        return kept

    with served(Rule(workers=2)) as job:
        assert job.on_workers(work) == [[4.0] * 3] * 2
