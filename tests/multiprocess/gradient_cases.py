"""Gradients of odd kinds beside DistributedDataParallel's: undefined, empty, of several types and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hocket.errors import HocketError
from tests.multiprocess.buffer_cases import batch, plain
from tests.multiprocess.twins import Twins, differing

STEPS = 12


class Dropping(torch.autograd.Function):
    """The identity, whose backward pass gives no gradient if ``drop``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, drop: bool) -> torch.Tensor:
        ctx.drop = drop
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return None if ctx.drop else gradient, None


class Maybe(nn.Module):
    """Two layers side by side and one behind them, each of which may get no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, drop: str) -> torch.Tensor:
        left, right = Dropping.apply(self.left(x), "l" in drop), Dropping.apply(self.right(x), "r" in drop)
        return Dropping.apply(self.head((left + right).tanh()), "h" in drop)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def gradients(model: nn.Module) -> list[torch.Tensor | None]:
    """A copy of each gradient, as it is looked at before the step."""
    return [None if p.grad is None else p.grad.detach().clone() for p in plain(model).parameters()]


def loop(rank: int, twins: Twins, loss: Callable[[int, nn.Module], torch.Tensor], look: int = 3) -> list[str]:
    """The usual loop; in every ``look``-th step, gradients are compared, too."""
    found = []
    for step in range(STEPS):
        seen = []
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            loss(step, model).backward()
            if step % look == 0:
                seen.append(gradients(model))
            optimizer.step()
        found += differing(f"gradients of step {step}", *seen) if seen else []
    return found + twins.differences()


def undefined(rank: int) -> list[str]:
    """Of no parameter, of some and of all, on all ranks and on one."""
    drops = ["", "h", "", "l", "r", "h", "lr", ""]

    def alike(step: int, model: nn.Module) -> torch.Tensor:
        return model(batch(rank, step), drops[step % 8]).square().sum()

    def unlike(step: int, model: nn.Module) -> torch.Tensor:
        return model(batch(rank, step), drops[(step + 3 * rank) % 8]).square().sum()

    found = []
    for loss in (alike, unlike):
        for plan in ("ddp", None):
            found += loop(rank, Twins(Maybe, adam, unused=True, plan=plan), loss)
    return found


def undefined_while_accumulating(rank: int) -> list[str]:
    twins = Twins(Maybe, adam, unused=True)
    for step in range(STEPS):
        for model, optimizer, no_sync in twins.each():
            optimizer.zero_grad()
            with no_sync():
                model(batch(rank, step), "l" if step % 2 else "").square().sum().backward()
            model(batch(rank, 50 + step), "lh" if step % 3 else "r").square().sum().backward()
            optimizer.step()
    return twins.differences()


class Odd(nn.Module):
    """Parameters without elements, without dimensions, of two types, in two layouts, and one used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.none, self.scale = nn.Parameter(torch.zeros(0, 4)), nn.Parameter(torch.ones(()))
        self.exact = nn.Linear(6, 6, dtype=torch.float64)
        self.brief = nn.Linear(6, 6, dtype=torch.bfloat16)
        self.conv = nn.Conv2d(2, 4, 2).to(memory_format=torch.channels_last)
        self.turned = nn.Parameter(torch.randn(6, 6).T)
        self.head = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.exact(x.double()).float() + self.brief(x.bfloat16()).float() + self.none.sum()
        x = self.head(x.tanh() @ self.turned)
        image = (
            self.head(x).reshape(-1, 2, 3, 1).repeat(1, 1, 1, 3).contiguous(memory_format=torch.channels_last)
        )
        return self.conv(image).square().mean() * self.scale.square() + x.square().mean()


def odd_parameters(rank: int) -> list[str]:
    def sgd(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.003, momentum=0.9)

    found = []
    for plan in ("ddp", None):
        twins = Twins(Odd, sgd, plan=plan)
        found += loop(rank, twins, lambda step, model: model(batch(rank, step)))
        found += [
            f"layout of {name}"
            for (name, a), b in zip(plain(twins.ddp).named_parameters(), twins.ours.parameters(), strict=True)
            if a.grad.stride() != b.grad.stride() or a.grad.dtype is not b.grad.dtype
        ]
    return found


class Several(nn.Module):
    """Outputs in containers, of which a step uses some."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.heads = nn.ModuleList(nn.Linear(6, 3) for _ in range(3))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        x = self.body(x).tanh()
        return {"first": self.heads[0](x), "rest": (self.heads[1](x), [self.heads[2](x), "a word"])}


def some_of_the_outputs(rank: int) -> list[str]:
    def loss(step: int, model: nn.Module) -> torch.Tensor:
        out = model(batch(rank, step))
        which = (step + rank) % 3
        return (out["first"], out["rest"][0], out["rest"][1][0])[which].square().sum() + out["first"].sum()

    return loop(rank, Twins(Several, adam, unused=True), loss)


def read_in_the_pass(rank: int) -> list[str]:
    """A parameter's hook finds this rank's own gradient, as with DDP; of what has left nobody finds any."""
    twins = Twins(Maybe, lambda model: torch.optim.SGD(model.parameters(), lr=0.1), unused=True)
    read: list[list[float]] = [[], []]
    for norms, model in zip(read, (twins.ddp.module, twins.ours), strict=True):
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p, norms=norms: norms.append(float(p.grad.norm())))
    for step in range(6):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * rank + step))
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            model(x, "").square().sum().backward()
            optimizer.step()
    found = twins.differences() + ([] if read[0] == read[1] and len(read[0]) == 36 else ["what hooks read"])
    early = twins.ours.head.bias  # its gradient leaves first
    twins.ours.left.weight.register_post_accumulate_grad_hook(lambda _: early.grad.norm())
    try:
        twins.ours(x, "").square().sum().backward()
    except HocketError as error:
        return found if "'head.bias' was read" in str(error) else [*found, str(error)]
    return [*found, "a gradient that had left was read"]


CASES = (undefined, undefined_while_accumulating, odd_parameters, some_of_the_outputs, read_in_the_pass)


def all_of_them(rank: int, world: int) -> dict[str, list[str]]:
    return {case.__name__: case(rank) for case in CASES}
