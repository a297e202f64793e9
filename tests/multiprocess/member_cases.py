"""Which parameters are trained: shared ones, ignored ones, late ones, and whose optimizers they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import hocket
from hocket.errors import HocketError
from tests.multiprocess.buffer_cases import batch, plain
from tests.multiprocess.twins import Twins, differing

STEPS = 8


class Two(nn.Module):
    """An encoder and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return self.head(self.body(x).tanh() - self.mean) * self.scale


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def steps(rank: int, model: nn.Module, optimizer: Any, first: int = 0, count: int = STEPS) -> None:
    for step in range(first, first + count):
        optimizer.zero_grad()
        model(batch(rank, step)).square().sum().backward()
        optimizer.step()


def both(rank: int, twins: Twins) -> list[str]:
    for model, optimizer, _ in twins.each():
        steps(rank, model, optimizer)
    return twins.differences()


def refused(wanted: str, call: Callable[[], object]) -> list[str]:
    try:
        call()
    except HocketError as error:
        return [] if wanted in str(error) and "\n" not in str(error) else [str(error)]
    return [f"nothing was refused of which it is said: {wanted}"]


def given(model: nn.Module, optimizer: Any = None) -> tuple[nn.Module, Any]:
    """``model`` distributed."""
    return hocket.distribute(model, sgd(model) if optimizer is None else optimizer, plan="ddp", timeout_s=60)


def unlike(*tensors: torch.Tensor) -> list[str]:
    """Which of ``tensors`` differ between ranks."""
    found = []
    for k, tensor in enumerate(tensors):
        every = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(every, tensor.detach().contiguous())
        found += [] if all(torch.equal(each, every[0]) for each in every) else [f"tensor {k} differs"]
    return found


# Shared parameters.


def shared_by_two_models(rank: int) -> list[str]:
    encoder = nn.Linear(6, 6)
    actor, critic = (
        nn.Sequential(encoder, nn.Linear(6, 3)),
        nn.Sequential(nn.Tanh(), nn.Linear(6, 6), encoder),
    )
    given(actor)
    wanted = "'2.weight' is trained already, as '0.weight' of a Sequential that is distributed"
    found = refused(wanted, lambda: given(critic))
    found += refused("'weight' is trained already, as '0.weight'", lambda: given(encoder))
    steps(rank, actor, sgd(actor))  # what was refused has left nothing behind
    actor.hocket.detach()
    optimizer = given(critic)[1]
    steps(rank, critic, optimizer)
    critic.hocket.flush()
    return found + unlike(*critic.parameters())


def shared_by_parts_of_one_model(rank: int) -> list[str]:
    """What is refused for two models works as one, also where a script calls its parts."""

    def make() -> nn.Module:
        encoder = nn.Linear(6, 6)
        return nn.ModuleDict(
            {
                "actor": nn.Sequential(encoder, nn.Linear(6, 3)),
                "critic": nn.Sequential(encoder, nn.Linear(6, 1)),
            }
        )

    torch.manual_seed(0)
    ours, reference = make(), make()
    reference.load_state_dict(ours.state_dict())
    optimizer, other = given(ours)[1], sgd(reference)
    for step in range(STEPS):
        for model, o in ((ours, optimizer), (reference, other)):
            o.zero_grad()
            x = batch(rank, step)
            (model["actor"](x).square().sum() + model["critic"](x).sum()).backward()
            for p in model.parameters() if model is reference else ():
                p.grad.div_(dist.get_world_size())
                dist.all_reduce(p.grad)
            o.step()
    return differing("", reference.state_dict(), ours.state_dict())


def frozen_in_both(rank: int) -> list[str]:
    """A frozen encoder may be in any number of models."""
    encoder = nn.Linear(6, 6).requires_grad_(False)
    models = [nn.Sequential(encoder, nn.Linear(6, 3)) for _ in range(2)]
    optimizers = [given(model)[1] for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        steps(rank, model, optimizer)
        model.hocket.flush()
    return unlike(*(p for model in models for p in model.parameters()))


def trained_here_and_frozen_there(rank: int) -> list[str]:
    """Another model that was given while it was frozen may have it, unfrozen again; one sums it up."""
    encoder = nn.Linear(6, 6)
    first, second = nn.Sequential(encoder, nn.Linear(6, 3)), nn.Sequential(encoder, nn.Linear(6, 3))
    optimizer = given(first)[1]
    encoder.requires_grad_(False)
    other = given(second, torch.optim.SGD(second[1].parameters(), lr=0.01))[1]
    encoder.requires_grad_(True)
    for step in range(STEPS):
        steps(rank, first, optimizer, step, 1)
        encoder.requires_grad_(False)
        steps(rank, second, other, step, 1)
        encoder.requires_grad_(True)
    for model in (first, second):
        model.hocket.flush()
    return unlike(*first.parameters(), *second.parameters())


class Tied(nn.Module):
    """An embedding whose weight is that of the last layer as well, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.twice = nn.Embedding(7, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embed.weight
        self.alias = self.twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = (x.abs() * 3).long() % 7
        return self.head(self.alias(self.twice(self.embed(tokens)).tanh()).tanh())


def tied_weights(rank: int) -> list[str]:
    def parametrized() -> nn.Module:
        model = Two()
        nn.utils.parametrizations.weight_norm(model.body)
        nn.utils.parametrizations.orthogonal(model.head)
        return model

    return both(rank, Twins(Tied, sgd)) + both(rank, Twins(parametrized, sgd))


# Parameters that come later.


def a_layer_replaced_later(rank: int) -> list[str]:
    found = []
    for way in ("new optimizer", "add_param_group", "neither"):
        model, optimizer = given(Two())
        steps(rank, model, optimizer)
        model.head = nn.Linear(6, 3)
        if way == "new optimizer":
            optimizer = sgd(model)
        elif way == "add_param_group":
            optimizer.add_param_group({"params": list(model.head.parameters())})
        wanted = "'head.weight' has come to the model after hocket.distribute was called"
        found += refused(wanted, lambda: steps(rank, model, optimizer))  # noqa: B023
        model.hocket.detach()
        optimizer = given(model)[1]
        steps(rank, model, optimizer)
        model.hocket.flush()
        found += unlike(*model.parameters())
    return found


def a_parameter_added_later(rank: int) -> list[str]:
    model, optimizer = given(Two())
    steps(rank, model, optimizer)
    model.body.register_parameter("extra", nn.Parameter(torch.ones(2), requires_grad=False))
    steps(rank, model, optimizer)  # frozen, it is nobody's
    model.body._parameters["more"] = nn.Parameter(torch.ones(2))
    return refused("'body.more' has come to the model", lambda: steps(rank, model, optimizer))


def other_values_for_one_pass(rank: int) -> list[str]:
    """As where a model learns to learn: weights a step ahead are no parameters that came later."""
    torch.manual_seed(0)
    ours, reference = Two(), Two()
    reference.load_state_dict(ours.state_dict())
    reference.register_forward_pre_hook(lambda module, _: dist.broadcast(module.mean, 0) and None)
    optimizer, other = given(ours)[1], sgd(reference)
    for step in range(STEPS):
        for model, o in ((ours, optimizer), (reference, other)):
            o.zero_grad()
            weights = dict(model.named_parameters())
            loss = model(batch(rank, step)).square().mean()
            ahead = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            fast = {name: p - 0.1 * g for (name, p), g in zip(weights.items(), ahead, strict=True)}
            torch.func.functional_call(model, fast, (batch(rank, 50 + step),)).square().mean().backward()
            for p in model.parameters() if model is reference else ():
                p.grad.div_(dist.get_world_size())
                dist.all_reduce(p.grad)
            o.step()
    return differing("", dict(reference.named_parameters()), dict(ours.named_parameters()))


def a_parameter_added_to_the_optimizer(rank: int) -> list[str]:
    found = []
    elsewhere = nn.Linear(6, 6)
    model, optimizer = given(Two())
    steps(rank, model, optimizer)
    optimizer.add_param_group({"params": list(elsewhere.parameters())})
    steps(rank, model, optimizer)  # they have no gradients
    optimizer.zero_grad()
    elsewhere(model(batch(rank, 0)).repeat(1, 2)).sum().backward()
    wanted = "a parameter of shape (6, 6) was added to the SGD after hocket.distribute was called"
    found += refused(wanted, optimizer.step)
    # What another model that is distributed sums up may be added, and what was there all the time.
    one, other, loss = Two(), Two(), nn.Linear(3, 3)
    optimizer = torch.optim.SGD([*one.parameters(), *loss.parameters()], lr=0.01)
    given(one, optimizer)
    given(other)
    optimizer.add_param_group({"params": list(other.parameters())})
    for step in range(STEPS):
        optimizer.zero_grad()
        (loss(one(batch(rank, step))) * other(batch(rank, step))).sum().backward()
        for p in loss.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
    for each in (one, other):
        each.hocket.flush()
    return found + unlike(*one.parameters(), *other.parameters())


def only_some_are_the_optimizers(rank: int) -> list[str]:
    """Others may be given to it later, since they are trained all along, or stepped by another one."""

    def make(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.head.parameters(), lr=0.01)

    twins = Twins(Two, make)
    others = [torch.optim.SGD([plain(model).scale], lr=0.01) for model, _, _ in twins.each()]
    for step in range(STEPS):
        for (model, optimizer, _), other in zip(twins.each(), others, strict=True):
            optimizer.zero_grad()
            other.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            optimizer.step()
            other.step()
            if step == 4:
                optimizer.add_param_group({"params": list(plain(model).body.parameters()), "lr": 0.02})
    return twins.differences()


def unfrozen_later(rank: int) -> list[str]:
    found = []
    for way in ("the optimizer has it", "a new optimizer"):
        model = Two()
        model.body.requires_grad_(False)
        optimizer = given(model)[1]
        steps(rank, model, optimizer)
        model.body.requires_grad_(True)
        optimizer = sgd(model) if way == "a new optimizer" else optimizer
        wanted = "'body.weight' was frozen when hocket.distribute was called, and has a gradient"
        found += refused(wanted, lambda: steps(rank, model, optimizer))  # noqa: B023
    return found


def frozen_later(rank: int) -> list[str]:
    """Some steps long, on all ranks."""
    twins = Twins(Two, sgd, unused=True)
    for step in range(12):
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            plain(model).body.requires_grad_(not 3 < step < 8)
            model(batch(rank, step)).square().sum().backward()
            optimizer.step()
    return twins.differences()


def optimizers_of_other_models(rank: int) -> list[str]:
    model = Two()
    found = refused("the SGD has no parameter of the model", lambda: given(model, sgd(Two())))
    both_ = [sgd(model), torch.optim.Adam(nn.Linear(2, 2).parameters())]
    found += refused("the Adam has no parameter of the model", lambda: given(model, both_))
    found += refused("no optimizer has a parameter of the model", lambda: given(model, []))
    model.head.requires_grad_(False)
    frozen = torch.optim.SGD(model.head.parameters(), lr=0.1)
    return found + refused("no optimizer has a parameter of the model", lambda: given(model, frozen))


# Names that DistributedDataParallel ignores.


def ignored_by_name(rank: int) -> list[str]:
    """Neither alike at the start nor summed up: a parameter, a buffer, and what is both under one name."""

    def make() -> nn.Module:
        model = Two()
        model.register_buffer("own", torch.full((rank + 1,), float(rank)))
        model.tied = nn.Linear(6, 6)
        model.tied.weight = model.body.weight
        with torch.no_grad():
            model.head.weight.add_(rank)
        ignored = ["head.weight", "own", "mean", "tied.weight"]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
        return model

    twins = Twins(make, sgd, unused=True, plan="ddp")
    twins.ours._ddp_params_and_buffers_to_ignore = ()  # read when it is distributed
    found = both(rank, twins)
    model = twins.ours
    found += [] if unlike(model.head.weight) and unlike(model.mean) else ["what is ignored is alike"]
    return found + unlike(model.head.bias, model.body.weight)


def ignored_of_the_model_itself(rank: int) -> list[str]:
    """By either name: the one that torch's documentation makes begins by a dot."""
    found = []
    for name in ("scale", ".scale"):
        model = Two()
        with torch.no_grad():
            model.scale.fill_(rank + 1)
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, [name])
        optimizer = given(model)[1]
        found += [] if model.scale == rank + 1 else ["the start"]
        steps(rank, model, optimizer)
        model.hocket.flush()
        found += [] if unlike(model.scale) else [f"{name} is alike"]
    every = [name for name, _ in model.named_parameters()]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, every)
    model.hocket.detach()
    return found + refused("no parameter of the model requires a gradient", lambda: given(model))


# Optimizers that are none of torch's.


class Slow:
    """A wrapper that is no optimizer of torch's at all: averages what the one within it does."""

    def __init__(self, within: torch.optim.Optimizer) -> None:
        self.within = within
        self.slow = [p.detach().clone() for group in within.param_groups for p in group["params"]]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.within.param_groups

    def zero_grad(self) -> None:
        self.within.zero_grad()

    def step(self, weight: float, *, last: bool = False) -> str:
        self.within.step()
        for slow, p in zip(self.slow, self.within.param_groups[0]["params"], strict=True):
            slow.lerp_(p.detach(), weight)
            p.data.copy_(slow)
        return f"stepped {last}"

    def state_dict(self) -> dict[str, Any]:
        return self.within.state_dict()


def wrappers_of_a_users(rank: int) -> list[str]:
    twins = Twins(Two, lambda model: [Slow(sgd(model))])
    found = []
    for step in range(STEPS):
        for model, (optimizer,), _ in twins.each():
            optimizer.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            found += [] if optimizer.step(0.5, last=True) == "stepped True" else ["what it returns"]
    found += [] if "Slow" in twins.ours.hocket.explain() else ["nothing is said"]
    (wrapper,) = twins.optimizers[1]
    found += twins.differences()
    twins.ours.hocket.detach()
    return found + ([] if "step" not in vars(wrapper) else ["its step is left"])


def wrappers_of_torchs(rank: int) -> list[str]:
    def local(model: nn.Module) -> Any:
        averager = PeriodicModelAverager(period=2, warmup_steps=3)
        return PostLocalSGDOptimizer(sgd(model), averager)

    def shards(model: nn.Module) -> Any:
        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)

    found = []
    for make, plan in ((local, None), (shards, None), (local, "ddp")):
        twins = Twins(Two, make, plan=plan)
        for model, optimizer, _ in twins.each():
            steps(rank, model, optimizer)
        found += differing(make.__name__, twins.ddp.module.state_dict(), twins.ours.state_dict())
    return found


def wrapped_after_it_was_given(rank: int) -> list[str]:
    twins = Twins(Two, sgd)
    for model, optimizer, _ in twins.each():
        averager = PeriodicModelAverager(period=2, warmup_steps=3)
        steps(rank, model, PostLocalSGDOptimizer(optimizer, averager))
    return twins.differences()


CASES = (
    shared_by_two_models, shared_by_parts_of_one_model, frozen_in_both, trained_here_and_frozen_there,
    tied_weights, a_layer_replaced_later, a_parameter_added_later, other_values_for_one_pass,
    a_parameter_added_to_the_optimizer, only_some_are_the_optimizers, unfrozen_later, frozen_later,
    optimizers_of_other_models, ignored_by_name, ignored_of_the_model_itself, wrappers_of_a_users,
    wrappers_of_torchs, wrapped_after_it_was_given,
)  # fmt: skip


def all_of_them(rank: int, world: int) -> dict[str, list[str]]:
    return {case.__name__: case(rank) for case in CASES}
