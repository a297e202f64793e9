"""Gradients that are sparse, complex, of several types, without elements or of odd strides: as DDP's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import hocket
from hocket.errors import HocketError
from tests.multiprocess.setups import plan_at_once, trainable
from tests.multiprocess.twins import SLOW, Twins, sliced_plan

STEPS = 8
ROWS = 20
Case = Callable[[int], list[str]]


class Tables(nn.Module):
    """Two tables with sparse gradients, one of them of bags, beside layers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, 4, sparse=True)
        self.bags = nn.EmbeddingBag(ROWS, 4, mode="sum", sparse=True)
        self.head = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(x).sum(1) + self.bags(x))


def indices(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randint(0, ROWS, (4, 3), generator=generator)


def form(gradient: torch.Tensor | None) -> Any:
    """What is the same of two gradients with the same values."""
    if gradient is None:
        return None
    if gradient.layout is torch.sparse_coo:
        return "sparse", gradient.is_coalesced(), gradient.shape
    return gradient.layout, gradient.shape, gradient.stride(), gradient.dtype


def unlike(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    if ours is None or theirs is None or form(ours) != form(theirs):
        return form(ours) != form(theirs)
    if ours.layout is torch.sparse_coo:
        pairs = (ours._indices(), theirs._indices()), (ours._values(), theirs._values())
        return not all(torch.equal(a, b) for a, b in pairs)
    return not torch.equal(ours, theirs)


def compared(twins: Twins, step: int) -> list[str]:
    """Whose gradients differ in value, form or strides."""
    pairs = zip(twins.ddp.module.named_parameters(), twins.ours.parameters(), strict=True)
    found = [(name, form(a.grad), form(b.grad)) for (name, a), b in pairs if unlike(b.grad, a.grad)]
    return [f"gradient {name} in step {step}: {a} and {b}" for name, a, b in found]


def alternating(
    rank: int,
    twins: Twins,
    *,
    act: Callable[[nn.Module, Any], None] = lambda model, optimizers: None,
    inputs: Callable[[int, int], Sequence[Any]] = lambda rank, step: (indices(rank, step),),
    tolerance: float = 0.0,
) -> list[str]:
    """A loop on both; every second time gradients are compared before the step, which ends their travel."""
    found = []
    for step in range(STEPS):
        for model, optimizers, _ in twins.each():
            for optimizer in optimizers:
                optimizer.zero_grad()
            model(*inputs(rank, step)).abs().square().sum().backward()
            act(model, optimizers)
        if not tolerance and step % 2:
            found += compared(twins, step)
        for _, optimizers, _ in twins.each():
            for optimizer in optimizers:
                optimizer.step()
    return found + twins.differences(tolerance)


def sgd(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(trainable(model), lr=0.05, momentum=0.9)]


def plain_sgd(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(trainable(model), lr=0.05)]


def adagrad(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [torch.optim.Adagrad(trainable(model), lr=0.05)]


def adams(model: Tables) -> list[torch.optim.Optimizer]:
    tables = [model.table.weight, model.bags.weight]
    return [
        torch.optim.SparseAdam(tables, lr=0.05),
        torch.optim.Adam(model.head.parameters(), lr=0.05),
    ]


def sparse_sgd(rank: int) -> list[str]:
    return alternating(rank, Twins(Tables, plain_sgd))


def sparse_momentum(rank: int) -> list[str]:
    return alternating(rank, Twins(Tables, sgd))


def sparse_adagrad(rank: int) -> list[str]:
    return alternating(rank, Twins(Tables, adagrad))


def sparse_adam(rank: int) -> list[str]:
    return alternating(rank, Twins(Tables, adams))


def sparse_in_the_plans_order(rank: int) -> list[str]:
    """A plan that lists an order of its own, with slices of what turns out to be sparse."""
    torch.manual_seed(0)
    return alternating(rank, Twins(Tables, adams, plan=sliced_plan(Tables(), "listed")))


def sparse_auto(rank: int) -> list[str]:
    plan_at_once()
    twins = Twins(Tables, adams, plan="auto", network=SLOW)
    found = [d for _ in range(7) for d in alternating(rank, twins)]
    if not any("may be sparse" in line for line in twins.ours.hocket.explain().splitlines()):
        found.append(twins.ours.hocket.explain())
    return found


def sparse_many_rows(rank: int) -> list[str]:
    """Every row is used, some by one rank alone: summing up all of them costs less than gathering."""

    def most(rank: int, step: int) -> Sequence[Any]:
        generator = torch.Generator().manual_seed(10 * rank + step)
        return (torch.randperm(ROWS, generator=generator)[: ROWS - 2].view(6, 3),)

    return alternating(rank, Twins(Tables, adams), inputs=most)


def sparse_without_rows(rank: int) -> list[str]:
    """No row at all, on one rank or on both."""

    def few(rank: int, step: int) -> Sequence[Any]:
        return (indices(rank, step)[: 0 if step % 3 == 1 or (step % 3 == 2 and rank) else 4],)

    return alternating(rank, Twins(Tables, adams), inputs=few)


def sparse_accumulated(rank: int) -> list[str]:
    twins = Twins(Tables, adams)
    found = []
    for step in range(STEPS):
        for model, optimizers, no_sync in twins.each():
            for optimizer in optimizers:
                optimizer.zero_grad()
            with no_sync():
                for k in range(2):
                    model(indices(rank, 100 * step + k)).square().sum().backward()
            model(indices(rank, step)).square().sum().backward()
            model(indices(rank, step + 50)).square().sum().backward()
        found += compared(twins, step)
        for _, optimizers, _ in twins.each():
            for optimizer in optimizers:
                optimizer.step()
    return found + twins.differences()


def sparse_scaled(rank: int) -> list[str]:
    """GradScaler, which looks into sparse gradients, and gradients that are read and changed."""
    twins = Twins(Tables, plain_sgd)
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2) for _ in range(2)]
    for step in range(STEPS):
        for (model, (optimizer,), _), scaler in zip(twins.each(), scalers, strict=True):
            optimizer.zero_grad()
            scaler.scale(model(indices(rank, step)).square().sum()).backward()
            scaler.unscale_(optimizer)
            for p in trainable(model):
                p.grad.mul_(0.5)
            scaler.step(optimizer)
            scaler.update()
    return twins.differences()


def doubled(gradient: torch.Tensor) -> None:
    gradient.mul_(2)  # torch takes no sparse result of a hook


def tripled(p: torch.Tensor) -> None:
    p.grad.mul_(3)


def sparse_hooked(rank: int) -> list[str]:
    """Hooks on a sparse gradient, and on the parameter when it is there."""

    twins = Twins(Tables, plain_sgd)
    for model in (twins.ddp.module, twins.ours):
        model.table.weight.register_hook(doubled)
        model.bags.weight.register_post_accumulate_grad_hook(tripled)
    return alternating(rank, twins)


def held_sparse_gradients(rank: int) -> list[str]:
    """A gradient that the script holds becomes the mean, as with DDP, and stays its parameter's."""
    twins = Twins(Tables, plain_sgd)
    found = []
    for step in range(STEPS):
        held = []
        for model, (optimizer,), no_sync in twins.each():
            optimizer.zero_grad()
            with no_sync():
                model(indices(rank, step)).square().sum().backward()
            weight = trainable(model)[0]
            held.append(weight.grad)
            model(indices(rank, step + 50)).square().sum().backward()
            if weight.grad is not held[-1]:
                found.append(f"step {step}: another tensor")
            optimizer.step()
        found += [f"step {step}: the values differ"] if unlike(*held) else []
    return found + twins.differences()


class Sparsely(torch.autograd.Function):
    """A product whose weight has a sparse gradient, or, if ``dense``, a dense one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, dense: bool) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.dense = dense
        return x @ weight

    @staticmethod
    def backward(ctx: Any, above: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        gradient = x.t() @ above
        return above @ weight.t(), gradient if ctx.dense else gradient.to_sparse(1), None


class Own(nn.Module):
    """Says nowhere that its gradients are sparse."""

    def __init__(self, name: str = "weight") -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.weight = nn.Parameter(torch.randn(6, 3))

    def forward(self, x: torch.Tensor, dense: bool = False, used: bool = True) -> torch.Tensor:
        x = self.first(x)
        return Sparsely.apply(x, self.weight, dense) if used else x


def _means(rank: int, forms: Callable[[int, int], tuple[bool, bool]]) -> list[str]:
    """DDP refuses such gradients; the mean over the ranks is compared with the sum of both ranks' passes."""
    torch.manual_seed(0)
    ours, alone = Own(), Own()
    alone.load_state_dict(ours.state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in (ours, alone)]
    hocket.distribute(ours, optimizers[0], plan=sliced_plan(ours, "ready"))
    found = []
    for step in range(STEPS):
        batches = [torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * r + step)) for r in (0, 1)]
        for model, optimizer, ranks in ((ours, optimizers[0], [rank]), (alone, optimizers[1], [0, 1])):
            optimizer.zero_grad()
            for r in ranks:
                dense, used = forms(step, r)
                (model(batches[r], dense, used).square().sum() / len(ranks)).backward()
        for (name, a), b in zip(alone.named_parameters(), ours.parameters(), strict=True):
            if a.grad is None or b.grad is None:
                same = a.grad is b.grad
            else:
                close = torch.allclose(a.grad.to_dense(), b.grad.to_dense(), rtol=1e-5, atol=1e-6)
                same = close and a.grad.layout is b.grad.layout
            found += [] if same else [f"{name} in step {step}: {a.grad} and {b.grad}"]
        for optimizer in optimizers:
            optimizer.step()
        alone.load_state_dict(ours.state_dict())
    return found


def sparse_by_a_function(rank: int) -> list[str]:
    return _means(rank, lambda step, r: (False, True))


def sparse_at_times(rank: int) -> list[str]:
    return _means(rank, lambda step, r: (step % 3 == 1, True))


def sparse_on_one_rank(rank: int) -> list[str]:
    return _means(rank, lambda step, r: (r == step % 2, True))


def sparse_unused_at_times(rank: int) -> list[str]:
    """By one rank in some steps, by none in others."""
    return _means(rank, lambda step, r: (False, step % 3 == 0 or (step % 3 == 1 and r == 1)))


class Tied(nn.Module):
    """A sparse table whose weights are a layer's as well: together their gradient is dense."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, 4, sparse=True)
        self.head = nn.Linear(4, ROWS)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(x).tanh())


class TiedDensely(Tied):
    """The same, with a table whose gradient is dense, which DDP takes."""

    def __init__(self) -> None:
        super().__init__()
        self.table.sparse = False


def sparse_and_tied(rank: int) -> list[str]:
    twins = Twins(TiedDensely, plain_sgd)
    twins.ours.hocket.detach()
    twins.ours.table.sparse = True
    hocket.distribute(twins.ours, twins.optimizers[1])
    # A sum with a sparse gradient is rounded in another order.
    return alternating(rank, twins, tolerance=1e-5)


def sparse_of_a_late_form(rank: int) -> list[str]:
    """One line, on the rank that has it; without a word gradients of another form would reach optimizers."""
    torch.manual_seed(0)
    model = Own()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    hocket.distribute(model, optimizer, plan="ddp")
    x = torch.randn(4, 6)
    for _ in range(3):
        optimizer.zero_grad()
        model(x, True).sum().backward()
        optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(HocketError) as refused:
        model(x, False).sum().backward()
    dist.barrier()
    return [] if "gradient of 'weight' is sparse, which the first steps" in str(refused.value) else ["?"]


class Numbers(nn.Module):
    """Complex weights of two types beside real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8, dtype=torch.complex64)
        self.second = nn.Linear(8, 8, dtype=torch.complex128)
        self.turn = nn.Parameter(torch.tensor(0.5 + 0.5j))
        self.real = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x.to(torch.complex64)) * self.turn
        return self.real(self.second(x.to(torch.complex128)).abs().float())


class Conjugate(Numbers):
    """Gradients that are conjugates and not resolved, which not every optimizer takes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.turn.conj().abs() + self.first.bias.conj().sum().abs()


def _rows(rank: int, step: int) -> Sequence[Any]:
    return (torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * rank + step)),)


def _adam(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [torch.optim.Adam(trainable(model), lr=0.05)]


def complex_parameters(rank: int) -> list[str]:
    return alternating(rank, Twins(Numbers, _adam), inputs=_rows)


def complex_clipped(rank: int) -> list[str]:
    def clip(model: nn.Module, _: Any) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    return alternating(rank, Twins(Conjugate, sgd), inputs=_rows, act=clip)


def complex_auto(rank: int) -> list[str]:
    plan_at_once()
    twins = Twins(Numbers, sgd, plan="auto", network=SLOW)
    return [d for _ in range(7) for d in alternating(rank, twins, inputs=_rows)]


class Kinds(nn.Module):
    """Parameters of five types, without elements, without dimensions, and of strides of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3).to(memory_format=torch.channels_last)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.nothing = nn.Parameter(torch.empty(0, 7))
        self.turned = nn.Parameter(torch.randn(5, 6).t())
        self.gaps = nn.Parameter(torch.randn(6, 10)[:, ::2])
        self.wide = nn.Linear(5, 5, dtype=torch.float64)
        self.brain = nn.Linear(5, 5, dtype=torch.bfloat16)
        self.narrow = nn.Parameter(torch.ones(5, dtype=torch.float16))
        self.bias = nn.Parameter(torch.zeros(5))

    def __deepcopy__(self, memo: Any) -> Kinds:
        copied = Kinds()  # torch's own copies have no gaps
        copied.load_state_dict(self.state_dict())
        return copied

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x).mean((2, 3)) * self.scale + self.nothing.sum()
        x = x @ self.turned + x @ self.gaps + self.bias.expand(4, 5)
        x = self.brain(self.wide(x.double()).bfloat16()).float()
        return (x.half() * self.narrow).float()


def kinds_of_parameters(rank: int) -> list[str]:
    def images(rank: int, step: int) -> Sequence[Any]:
        generator = torch.Generator().manual_seed(100 * rank + step)
        x = torch.randn(4, 2, 8, 8, generator=generator)
        return (x.to(memory_format=torch.channels_last),)

    return alternating(rank, Twins(Kinds, sgd), inputs=images)


class Odd(torch.autograd.Function):
    """A sum whose gradients are ``expanded`` views or transposed ones: autograd may keep them as they are."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, expanded: bool) -> torch.Tensor:
        ctx.shape, ctx.expanded = weight.shape, expanded
        return weight.sum()

    @staticmethod
    def backward(ctx: Any, above: torch.Tensor) -> Any:
        if ctx.expanded:
            return above.expand(ctx.shape), None
        return (above + torch.zeros(ctx.shape[::-1])).t(), None


class Strided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Odd.apply(self.one, True) * x.sum() + Odd.apply(self.other, False) * x.mean()


def gradients_of_odd_strides(rank: int) -> list[str]:
    return alternating(rank, Twins(Strided, sgd), inputs=_rows)


CASES: Sequence[Case] = (
    sparse_sgd,
    sparse_momentum,
    sparse_adagrad,
    sparse_adam,
    sparse_in_the_plans_order,
    sparse_auto,
    sparse_many_rows,
    sparse_without_rows,
    sparse_accumulated,
    sparse_scaled,
    sparse_hooked,
    held_sparse_gradients,
    sparse_by_a_function,
    sparse_at_times,
    sparse_on_one_rank,
    sparse_unused_at_times,
    sparse_and_tied,
    sparse_of_a_late_form,
    complex_parameters,
    complex_clipped,
    complex_auto,
    kinds_of_parameters,
    gradients_of_odd_strides,
)


def three_ranks(rank: int, world: int) -> list[str]:
    """With rows that are summed up, and with rows that are gathered."""
    few = lambda rank, step: (indices(rank, step)[:1, :1],)  # noqa: E731
    options = {"tolerance": 1e-6}
    found = alternating(rank, Twins(Tables, adams), **options)
    return found + alternating(rank, Twins(Tables, plain_sgd), inputs=few, **options)


def compiled(rank: int, world: int) -> list[str]:
    found = alternating(rank, Twins(Tables, adams, compile=True))
    return found + alternating(rank, Twins(Numbers, sgd, compile=True), inputs=_rows)


def all_of_them(rank: int, world: int) -> dict[str, list[str]]:
    """What differs in each case."""
    return {case.__name__: case(rank) for case in CASES}
