"""Weights that are moved and put back are no change but for rounding; the least other change is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from hocket.errors import HocketError
from hocket.launch import Rule
from tests.multiprocess.serving_setups import OPTIMIZERS, close, made
from tests.multiprocess.setups import batch
from tests.serving import served

pytestmark = pytest.mark.slow

TYPES = [torch.float32, torch.float16, torch.bfloat16]
STEPS, CHANGED = 7, 5

Change = Callable[[nn.Module], None]


class Typed(nn.Module):
    """Computes in float32 whatever its weights are; the second layer's are far smaller."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(192, 8, dtype=dtype), nn.Linear(8, 5, dtype=dtype)
        with torch.no_grad():
            self.second.weight.mul_(1e-2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.linear(x.flatten(1), self.first.weight.float(), self.first.bias.float())
        return functional.linear(x, self.second.weight.float(), self.second.bias.float())


def loss(model: nn.Module, number: int) -> torch.Tensor:
    x, y = batch(0, number)
    return functional.cross_entropy(model(x), y)


def trained(
    dtype: torch.dtype, each: Callable[[int, nn.Module], None], rule: Rule | None = None
) -> nn.Module:
    """Trained with ``each(number, model)`` before each optimizer step, which has to leave gradients."""

    def work(worker: int) -> nn.Module:
        model = made(lambda: Typed(dtype))
        optimizer = OPTIMIZERS["sgd"](model)
        job.train(worker, model, optimizer)
        for number in range(STEPS):
            optimizer.zero_grad()
            each(number, model)
            optimizer.step()
        model.hocket.detach()
        return model

    with served(rule or Rule(mode="async")) as job:
        return job.on_workers(work)[0]


def decayed(model: nn.Module) -> None:
    """By hand."""
    for p in model.parameters():
        p.mul_(0.99 if p.dtype is not torch.float32 else 1 - 1e-6)


def clamped(model: nn.Module) -> None:
    """Only those whose weights are small."""
    weight = model.second.weight
    weight.clamp_(-0.9 * weight.abs().max(), 0.9 * weight.abs().max())


def noised(model: nn.Module) -> None:
    noise = torch.Generator().manual_seed(0)
    for p in model.parameters():
        scale = 8 * torch.finfo(p.dtype).eps
        p.mul_((1 + scale * torch.randn(p.shape, generator=noise)).to(p.dtype))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("change", [decayed, clamped, noised])
@pytest.mark.parametrize("when", ["before", "between", "behind"])
def test_small_changes_are_refused_before_and_behind_the_passes(
    dtype: torch.dtype, change: Change, when: str
) -> None:
    def each(number: int, model: nn.Module) -> None:
        for moment in ("before", "between", "behind"):
            if number == CHANGED and moment == when:
                with torch.no_grad():
                    change(model)
            if moment != "behind":
                loss(model, number).backward()

    with pytest.raises(HocketError, match=r"'(first|second)\.(weight|bias)' was changed between steps"):
        trained(dtype, each)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("times", [1e-3, 1.0, 30.0], ids=["small", "alike", "large"])
def test_weights_may_be_moved_and_put_back(dtype: torch.dtype, times: float) -> None:
    """As sharpness-aware minimisation does; rounding is that of the largest that a weight has been."""

    def each(number: int, model: nn.Module) -> None:
        loss(model, number).backward()
        moves = [times * p.abs().max() * torch.sign(p.grad) for p in model.parameters()]
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        model.zero_grad()
        loss(model, number).backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        with torch.no_grad():
            loss(model, number)
        for p in model.parameters():
            p.grad.clamp_(-1e-2, 1e-2)

    assert all(p.isfinite().all() for p in trained(dtype, each).parameters())


def test_weights_that_are_moved_in_turns_are_as_exact_as_where_each_has_been() -> None:
    """An evaluation of averages in between, which are put in place and back again bit by bit."""
    seen: list[float] = []

    def each(number: int, model: nn.Module) -> None:
        kept = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1e3)
            seen.append(loss(model, number).item())
            for p, value in zip(model.parameters(), kept, strict=True):
                p.copy_(value)
        loss(model, number).backward()

    def plain(number: int, model: nn.Module) -> None:
        loss(model, number).backward()

    model = trained(torch.float32, each)
    assert len(seen) == STEPS
    assert close(model.state_dict(), trained(torch.float32, plain).state_dict(), 0.0)
