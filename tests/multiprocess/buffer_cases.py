"""Buffers beside DistributedDataParallel's, on every rank after every pass, whoever changes them and when."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import hocket
from hocket.errors import HocketError
from tests.multiprocess.twins import Twins, differing

STEPS = 14
Act = Callable[[int, nn.Module], None]


class Normed(nn.Module):
    """A layer and BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Impatient(Normed):
    """Raises behind what it has changed, where its inputs are too large."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = super().forward(x)
        if x.max() > 500:
            raise KeyboardInterrupt
        if x.max() > 50:
            raise ValueError("too large")
        return found


class Codebook(nn.Module):
    """Its output depends on a buffer that nothing but a script changes, among buffers of other types."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("code", torch.ones(3))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("phase", torch.ones(2, dtype=torch.complex64), persistent=False)
        self.register_buffer("exact", torch.ones(3, 2, dtype=torch.float64).T)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        exact = self.exact.sum(0).float() * self.phase.real.sum()
        return self.layer(x) * self.code * exact + torch.where(self.mask, self.code, self.code.square())


def plain(model: nn.Module) -> Any:
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(1000 * rank + step))


def nothing(*_: Any) -> None:
    """What happens where a case does nothing."""


class Compared:
    """What both models of ``twins`` gave, pass by pass: outputs and this rank's buffers."""

    def __init__(self, twins: Twins) -> None:
        self.twins = twins
        self.seen: dict[int, list[Any]] = {id(model): [] for model, _, _ in twins.each()}

    def call(self, model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        output = model(x)
        kept = {name: buffer.clone() for name, buffer in plain(model).named_buffers()}
        self.seen[id(model)].append((output.detach().clone(), kept))
        return output

    def differences(self) -> list[str]:
        theirs, ours = self.seen.values()
        return differing("pass", theirs, ours)[:5] + self.twins.differences()


def loop(rank: int, twins: Twins, *, before: Act = nothing, after: Act = nothing) -> list[str]:
    compared = Compared(twins)
    for step in range(STEPS):
        for model, optimizer, _ in twins.each():
            before(step, plain(model))
            optimizer.zero_grad()
            compared.call(model, batch(rank, step)).square().sum().backward()
            optimizer.step()
            after(step, plain(model))
    return compared.differences()


def two_passes_before_one_backward(rank: int) -> list[str]:
    """As a discriminator that sees what is real and what is not."""
    found = []
    for make in (Normed, Codebook):
        twins = Twins(make, sgd)
        compared = Compared(twins)
        for step in range(STEPS):
            for model, optimizer, _ in twins.each():
                optimizer.zero_grad()
                real, made = (compared.call(model, batch(rank, 2 * step + k)) for k in range(2))
                (real.mean() - made.square().mean()).backward()
                optimizer.step()
        found += compared.differences()
    return found


def passes_and_backwards_by_turns(rank: int) -> list[str]:
    """Two models with BatchNorm, each read while the other one learns."""
    makers, judges = Twins(Normed, sgd), Twins(lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)), sgd)
    compared = Compared(makers), Compared(judges)
    both = list(zip(makers.each(), judges.each(), strict=True))
    for step in range(STEPS):
        for (maker, of_maker, _), (judge, of_judge, _) in both:
            made = compared[0].call(maker, batch(rank, step))
            of_judge.zero_grad()
            real = compared[1].call(judge, batch(rank, 100 + step)[:, :3])
            (compared[1].call(judge, made.detach()) - real).mean().backward()
            of_judge.step()
            of_maker.zero_grad()
            for p in plain(judge).parameters():
                p.requires_grad_(False)
            compared[1].call(judge, made).mean().neg().backward()
            of_maker.step()
            for p in plain(judge).parameters():
                p.requires_grad_(True)
    return [d for each in compared for d in each.differences()]


def changed_from_some_step_on(rank: int) -> list[str]:
    """By all ranks, each its own way, by the first or by another one, in ways that versions show or not."""
    found = []
    for who in ([0, 1], [0], [1]):
        for way in ("in place", "by data", "replaced", "once"):

            def change(step: int, model: Any, who: list[int] = who, way: str = way) -> None:
                due = step == 6 if way == "once" else step >= 5 and step % 3 == 0
                if not due or rank not in who:
                    return
                value = torch.rand(3, generator=torch.Generator().manual_seed(100 * rank + step))
                if way == "replaced":
                    model.code = value
                elif way == "by data":
                    model.code.data.copy_(value)
                else:
                    model.code.copy_(value)

            twins = Twins(Codebook, sgd)
            found += [f"{way}, {who}: {d}" for d in loop(rank, twins, after=change)]
    return found


def changed_in_every_step(rank: int) -> list[str]:
    def change(step: int, model: Any) -> None:
        model.code.mul_(1.0 + 0.01 * rank + 0.001 * step)

    return loop(rank, Twins(Codebook, sgd), after=change) + loop(rank, Twins(Codebook, sgd), before=change)


def resized_and_registered_later(rank: int) -> list[str]:
    """On all ranks; one that the model has not had when it was given is kept alike, too."""

    def change(step: int, model: Any) -> None:
        if step == 4:
            model.register_buffer("later", torch.full((2,), float(rank)))
        if step > 6:
            model.later = torch.cat([model.later, torch.full((1,), float(step + rank))])

    return loop(rank, Twins(Codebook, sgd), after=change)


def removed_later(rank: int) -> list[str]:
    """The only one that there is, with which DDP fails; what comes in its place is the first rank's."""
    model: Any = nn.Sequential(nn.Linear(6, 3))
    model.register_buffer("only", torch.full((3,), float(rank)))
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan="ddp", timeout_s=30)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(rank, step)).square().sum().backward()
        optimizer.step()
        if step == 5:
            model.only = None
        if step == 9:
            model.only = torch.full((2,), float(rank + 7))
    return [] if torch.equal(model.only, torch.full((2,), 7.0)) else [f"{model.only}"]


def resized_on_one_rank(rank: int) -> list[str]:
    """Refused there, in one line."""
    model = Codebook()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan="ddp", timeout_s=20)
    try:
        for step in range(STEPS):
            if step == 8 and rank == 1:
                model.register_buffer("later", torch.zeros(9))
            optimizer.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            optimizer.step()
    except HocketError as error:
        wanted = "the model's buffers differ: rank 0 has" if rank else "rank 1 is"
        return [] if wanted in str(error) else [str(error)]
    return ["went on"]


def several_passes_under_no_sync(rank: int) -> list[str]:
    found = []
    for make in (Normed, Codebook):
        twins = Twins(make, sgd)
        compared = Compared(twins)
        for step in range(STEPS):
            for model, optimizer, no_sync in twins.each():
                optimizer.zero_grad()
                for part in range(3):
                    with no_sync() if part < 2 else contextlib.nullcontext():
                        compared.call(model, batch(rank, 10 * step + part)).square().sum().backward()
                optimizer.step()
                if make is Codebook and step % 4 == 2:
                    plain(model).code.add_(0.1 * (rank + 1))
        found += compared.differences()
    return found


def evaluation_between(rank: int) -> list[str]:
    """Also twice, and with statistics that passes without gradients change."""
    twins = Twins(Normed, sgd)
    compared = Compared(twins)
    for step in range(STEPS):
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            compared.call(model, batch(rank, step)).square().sum().backward()
            optimizer.step()
            with torch.no_grad():
                if step % 3 == 1:
                    model.eval()
                    compared.call(model, batch(rank, 50 + step))
                    compared.call(model, batch(rank, 60 + step))
                    model.train()
                if step % 5 == 3:
                    compared.call(model, batch(rank, 70 + step))
    return compared.differences()


def changed_and_then_evaluated(rank: int) -> list[str]:
    """The training that follows is as DDP's; the evaluation has this rank's own, and it says so."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = _changed_and_evaluated(rank)
    lines = [str(each.message) for each in told if "has changed on rank" in str(each.message)]
    expected = ["buffer 'code' has changed on rank 1"] if rank else []
    return found + ([] if [line[:35] for line in lines] == expected else [f"told: {lines}"])


def _changed_and_evaluated(rank: int) -> list[str]:
    twins = Twins(Codebook, sgd)
    outputs: dict[int, list[torch.Tensor]] = {id(model): [] for model, _, _ in twins.each()}
    for step in range(STEPS):
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            output = model(batch(rank, step))
            outputs[id(model)].append(output.detach())
            output.square().sum().backward()
            optimizer.step()
            if step % 4 == 2:
                plain(model).code.add_(0.1 * (rank + 1))
            if step % 4 in (1, 2):
                with torch.no_grad():
                    model(batch(rank, 50 + step))
    return differing("outputs", *outputs.values()) + twins.differences()


def evaluation_mode_on_one_rank(rank: int) -> list[str]:
    twins = Twins(Normed, sgd)
    for model in (twins.ddp, twins.ours):
        model.train(rank == 0)
    return loop(rank, twins)


class Recomputed(nn.Module):
    """BatchNorm within a checkpoint: its statistics change in the backward pass, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.norm, self.first(x), use_reentrant=False))


def statistics_of_checkpoints(rank: int) -> list[str]:
    twins = Twins(Recomputed, sgd)

    def evaluate(step: int, model: Any) -> None:
        outer = twins.ours if model is twins.ours else twins.ddp
        if step % 4 == 3:
            with torch.no_grad():
                outer.eval()(batch(rank, 50))
                outer.train()

    return loop(rank, twins, after=evaluate)


class Averaged(nn.Module):
    """Its forward pass has a collective of its own, as layers that normalise over all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        if self.training:
            mean = x.detach().mean(0)
            dist.all_reduce(mean)
            self.mean.lerp_(mean / dist.get_world_size(), 0.1)
        return x - self.mean


def collectives_within_the_pass(rank: int) -> list[str]:
    return loop(rank, Twins(Averaged, sgd))


class Silent(Normed):
    """Returns nothing: its loss is an attribute."""

    loss: torch.Tensor

    def forward(self, x: torch.Tensor) -> None:  # type: ignore[override]
        self.loss = self.layers(x).square().sum()


def passes_that_return_nothing(rank: int) -> list[str]:
    twins = Twins(Silent, sgd, unused=False)
    for step in range(STEPS):
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            model(batch(rank, step))
            plain(model).loss.backward()
            optimizer.step()
    return twins.differences()


def a_pass_that_fails_on_one_rank(rank: int) -> list[str]:
    """A bad batch that one rank leaves out: ranks stay in step, and alike."""
    model = Normed()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan="ddp", timeout_s=30)
    for step in range(STEPS):
        if rank == 1 and step in (3, 8):
            with contextlib.suppress(RuntimeError):
                model(torch.zeros(5, 7))
        optimizer.zero_grad()
        model(batch(rank, step)).square().sum().backward()
        optimizer.step()
    with torch.no_grad():
        model.eval()(batch(rank, 99))  # puts in place what has come
    mine = torch.cat([t.detach().double().reshape(-1) for t in model.state_dict().values()])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return [] if torch.equal(*every) else [f"ranks differ: {every}"]


def a_pass_that_fails_on_all_ranks(rank: int) -> list[str]:
    """The pass behind it reads each rank's own buffers, and says so once; later ones are as DDP's."""
    twins = Twins(Impatient, sgd)
    compared = Compared(twins)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(STEPS):
            for model, optimizer, _ in twins.each():
                optimizer.zero_grad()
                if step in (3, 8):
                    with contextlib.suppress(KeyboardInterrupt, ValueError):
                        model(torch.full((5, 6), 100.0 * step))
                    model(batch(rank, step)).square().sum().backward()
                else:
                    compared.call(model, batch(rank, step)).square().sum().backward()
                optimizer.step()
    lines = [str(each.message) for each in told if "a forward pass raised" in str(each.message)]
    return compared.differences() + ([] if len(lines) == 1 else [f"told: {lines}"])


def a_pass_on_one_rank_alone(rank: int) -> list[str]:
    """With gradients, as ``module`` of DDP may be called: one line instead of other ranks' old buffers."""
    model = Normed()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan="ddp", timeout_s=20)
    told = ""
    try:
        for step in range(STEPS):
            optimizer.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            optimizer.step()
            if rank == 0 and step == 6:
                model.eval().module(batch(rank, 99))
                model.train()
    except HocketError as error:
        told = str(error)
    expected = "training stopped" if rank == 0 else "a pass with gradients was on one rank alone"
    return [] if expected in told else [told]


def kept_apart(rank: int) -> list[str]:
    """With ``broadcast_buffers=False``, from the start on, of whatever shape."""

    def make() -> nn.Module:
        model = Codebook()
        model.code.mul_(rank + 2)
        model.register_buffer("own", torch.full((rank + 1,), float(rank)))
        return model

    twins = Twins(make, sgd, buffers={"broadcast_buffers": False})
    found = [] if twins.ours.code[0] == rank + 2 else ["the start"]
    return found + loop(rank, twins)


def kept_apart_after_the_start(rank: int) -> list[str]:
    def make() -> nn.Module:
        model = Codebook()
        model.code.mul_(rank + 2)
        return model

    def change(step: int, model: Any) -> None:
        model.code.add_(0.1 * rank)

    return loop(rank, Twins(make, sgd, buffers={"forward_sync_buffers": False}), after=change)


def unlike_at_the_start(rank: int) -> list[str]:
    def make() -> nn.Module:
        model = Codebook()
        model.code.mul_(rank + 2)
        return model

    return loop(rank, Twins(make, sgd, init_sync=False)) + loop(rank, Twins(make, sgd))


def registered_where_there_were_none(rank: int) -> list[str]:
    """DDP keeps none alike of a model that has had none."""

    def change(step: int, model: Any) -> None:
        if step == 4:
            model.register_buffer("later", torch.full((2,), float(rank)))

    return loop(rank, Twins(lambda: nn.Sequential(nn.Linear(6, 3)), sgd), after=change)


CASES = (
    two_passes_before_one_backward, passes_and_backwards_by_turns, changed_from_some_step_on,
    changed_in_every_step, resized_and_registered_later, removed_later, several_passes_under_no_sync,
    evaluation_between, changed_and_then_evaluated, evaluation_mode_on_one_rank, statistics_of_checkpoints,
    collectives_within_the_pass, passes_that_return_nothing, a_pass_that_fails_on_one_rank,
    a_pass_that_fails_on_all_ranks, kept_apart, kept_apart_after_the_start, unlike_at_the_start,
    registered_where_there_were_none, resized_on_one_rank,
)  # fmt: skip


def all_of_them(rank: int, world: int) -> dict[str, list[str]]:
    """The last one ends the training of a rank."""
    return {case.__name__: case(rank) for case in CASES}


def of_a_pass_alone(rank: int, world: int) -> list[str]:
    return a_pass_on_one_rank_alone(rank)
