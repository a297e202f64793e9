"""What scripts do beside the usual loop: gradients, parameters and buffers in the user's hands."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import hocket
from hocket.errors import HocketError
from hocket.graph import Plan, Reduction
from tests.multiprocess.setups import trainable
from tests.multiprocess.twins import Twins, differing

STEPS = 8
Act = Callable[[int, nn.Module, Any], None]


class Layers(nn.Module):
    """A parameter of the model's own and three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(8))
        self.first, self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(x + self.position).tanh()).tanh())


class Statistics(nn.Module):
    """BatchNorm, and a buffer that only its user changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.register_buffer("centre", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layer(x)) - self.centre)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(trainable(model), lr=0.01)


def plain(model: nn.Module) -> Any:
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(4, 8, generator=generator), torch.randint(0, 3, (4,), generator=generator)


def nothing(*_: Any) -> None:
    """What happens where a case does nothing."""


def loop(
    rank: int, twins: Twins, *, before: Act = nothing, between: Act = nothing, after: Act = nothing
) -> list[str]:
    """The usual loop with something before it, between backward pass and step, and after the step."""
    for step in range(STEPS):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            before(step, model, optimizer)
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            between(step, model, optimizer)
            optimizer.step()
            after(step, model, optimizer)
    return twins.differences()


def dropped_gradients(rank: int) -> list[str]:
    def drop(step: int, model: nn.Module, _: Any) -> None:
        for p in plain(model).head.parameters() if step >= 3 else ():
            p.grad = None

    return loop(rank, Twins(Layers, adam), between=drop)


def replaced_gradients(rank: int) -> list[str]:
    def replace(step: int, model: nn.Module, _: Any) -> None:
        if step >= 3:
            plain(model).head.weight.grad = torch.ones_like(plain(model).head.weight)

    return loop(rank, Twins(Layers, adam), between=replace)


def steps_without_gradients(rank: int) -> list[str]:
    def again(_: int, model: nn.Module, optimizer: Any) -> None:
        optimizer.zero_grad()
        optimizer.step()

    return loop(rank, Twins(Layers, adam), after=again)


def kept_gradients(rank: int) -> list[str]:
    """Of two backward passes, put together by hand."""
    twins = Twins(Layers, adam)
    for step in range(STEPS):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            parameters, kept = list(model.parameters()), []
            for k in range(2):
                optimizer.zero_grad()
                functional.cross_entropy(model(x + k), y).backward()
                kept.append([p.grad for p in parameters])
            for p, a, b in zip(parameters, *kept, strict=True):
                p.grad = a - 0.5 * b
            optimizer.step()
    return twins.differences()


def hooks_of_users(rank: int) -> list[str]:
    twins = Twins(Layers, adam)

    def clamp(p: torch.Tensor) -> None:
        assert p.grad is not None
        p.grad.clamp_(-0.01, 0.01)

    for model in (twins.ddp, twins.ours):
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(clamp)
    return loop(rank, twins)


def weights_set_before_a_step(rank: int) -> list[str]:
    def normalise(_: int, model: nn.Module, __: Any) -> None:
        with torch.no_grad():
            weight = plain(model).head.weight
            weight.copy_(functional.normalize(weight.data.clone(), dim=1))

    return loop(rank, Twins(Layers, adam), before=normalise)


def weights_clamped_after_a_step(rank: int) -> list[str]:
    def clamp(_: int, model: nn.Module, optimizer: Any) -> None:
        for p in plain(model).second.parameters():
            p.data.clamp_(-0.1, 0.1)
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data.clamp_(-0.3, 0.3)

    return loop(rank, Twins(Layers, adam), after=clamp)


def averages_by_hand(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    averages: dict[int, Any] = {}
    for model, _, _ in twins.each():
        held = list(model.parameters())
        averages[id(model)] = held, [p.detach().clone() for p in held]

    def average(_: int, model: nn.Module, __: Any) -> None:
        for p, mean in zip(*averages[id(model)], strict=True):
            mean.lerp_(p.detach(), 0.1)

    found = loop(rank, twins, after=average)
    (_, theirs), (_, ours) = averages.values()
    return found + differing("average", theirs, ours, 0.0)


def pickled_optimizers(rank: int) -> list[str]:
    states: list[Any] = []

    def keep(_: int, __: nn.Module, optimizer: Any) -> None:
        states.append(pickle.loads(pickle.dumps(optimizer)).state_dict()["state"])

    found = loop(rank, Twins(Layers, adam), after=keep)
    for theirs, ours in zip(states[::2], states[1::2], strict=True):
        found += differing("state", dict(sorted(theirs.items())), dict(sorted(ours.items())), 0.0)
    return found


def evaluation_in_inference_mode(rank: int) -> list[str]:
    def evaluate(_: int, model: nn.Module, __: Any) -> None:
        with torch.inference_mode():
            model(batch(rank, 99)[0])

    return loop(rank, Twins(Layers, adam), after=evaluate)


def buffers_changed_after_a_step(rank: int) -> list[str]:
    def move(_: int, model: nn.Module, __: Any) -> None:
        plain(model).centre.add_(0.01)

    return loop(rank, Twins(Statistics, adam), after=move)


def buffers_changed_on_the_first_rank(rank: int) -> list[str]:
    def move(_: int, model: nn.Module, __: Any) -> None:
        if rank == 0:
            plain(model).centre.add_(0.01)

    return loop(rank, Twins(Statistics, adam), after=move)


def buffers_changed_later_on_the_first_rank(rank: int) -> list[str]:
    """It is the others' a step later, and nothing gets out of line."""
    twins = Twins(Statistics, adam)

    def move(step: int, model: nn.Module, _: Any) -> None:
        if rank == 0 and step == 4 and model is twins.ours:
            model.centre.add_(0.5)

    loop(rank, twins, after=move)
    with torch.no_grad():
        twins.ours(batch(rank, 0)[0])  # has what was sent last put in place
    same = [torch.zeros(8) for _ in range(2)]
    dist.all_gather(same, twins.ours.centre)
    return [] if torch.equal(*same) and torch.equal(same[0], torch.full((8,), 0.5)) else [f"{same}"]


def the_job_ends_before_the_model(rank: int) -> list[str]:
    """A script that destroys its groups goes on with the model."""
    twins = Twins(Statistics, adam)
    loop(rank, twins)
    expected = copy.deepcopy(twins.ddp.module.state_dict())
    del twins.ddp
    dist.destroy_process_group()
    model = twins.ours
    with torch.no_grad():
        model(batch(rank, 0)[0])
    model.load_state_dict(model.state_dict())
    model.hocket.detach()
    trained = {name for name, _ in model.named_parameters()}
    there, here = ({key: state[key] for key in sorted(trained)} for state in (expected, model.state_dict()))
    return differing("", there, here, 0.0)


def saved_from_a_thread(rank: int) -> list[str]:
    """Another thread may look at what is up to date, and may not bring it up to date under the training."""
    twins = Twins(Layers, adam)
    told: list[str] = []

    def save() -> None:
        try:
            told.append(str(len(twins.ours.state_dict())))
        except HocketError as error:
            told.append(str(error))

    def in_a_thread(step: int, model: nn.Module, _: Any) -> None:
        if model is twins.ours and step >= 4:
            if step == 6:
                model.hocket.flush()
            thread = threading.Thread(target=save)
            thread.start()
            thread.join(30)

    found = loop(rank, twins, after=in_a_thread)
    as_said = "another thread than the one that trains" in told[0] and told[2] == "7"
    return found if as_said else [*found, *told]


def best_state_loaded(rank: int) -> list[str]:
    twins = Twins(Statistics, adam)
    loop(rank, twins)
    box = [copy.deepcopy(twins.ddp.module.state_dict())]
    dist.broadcast_object_list(box, 0)
    loop(rank, twins)
    outputs = []
    for model, _, _ in twins.each():
        plain(model).load_state_dict(box[0])
        model.eval()
        with torch.no_grad():
            outputs.append(model(batch(0, 5)[0]))
        model.train()
    return [] if torch.equal(*outputs) else ["evaluation differs"]


class Late(nn.Module):
    """From its fifth step on it reads two parameters where nobody has seen it do so, one of them detached."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 3)
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        if self.steps > 4:
            x = x * self.second.weight.detach().norm() + 3 * self.second.bias.sum()
        return self.second(self.first(x).tanh())


def reads_on_new_paths(rank: int) -> list[str]:
    names = tuple(name for name, _ in Late().named_parameters())
    whole = (Reduction(parameters=names, window="forward"),)
    plan = Plan(policy="t", model="t", architecture="allreduce", reductions=whole, compute_order=None)
    return loop(rank, Twins(Late, adam, plan=plan)) + loop(rank, Twins(Late, adam))


class Recursive(nn.Module):
    """Calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, again: int = 1) -> torch.Tensor:
        x = self.layer(x).tanh()
        return self(x, again - 1) if again else self.head(x)


def recursion(rank: int) -> list[str]:
    return loop(rank, Twins(Recursive, adam))


def flushed_within_the_backward_pass(rank: int) -> list[str]:
    """By one rank alone: what has left in this pass is not waited for."""
    twins = Twins(Layers, adam)
    for step in range(STEPS):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            if model is twins.ours and rank == 1:
                model.first.weight.register_hook(lambda _: twins.ours.hocket.flush())
            loss.backward()
            optimizer.step()
    return twins.differences()


def compiled_by_the_user(rank: int) -> list[str]:
    """After distribute, as DDP's documentation has it."""
    twins = Twins(Layers, adam)
    models = [torch.compile(model, backend="eager") for model in (twins.ddp, twins.ours)]
    for step in range(STEPS):
        x, y = batch(rank, step)
        for model, optimizer in zip(models, twins.optimizers, strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return twins.differences()


def parts_compiled_by_the_user(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    for model in (twins.ddp.module, twins.ours):
        model.second.compile(backend="eager")
    return loop(rank, twins)


def an_aborted_backward_pass(rank: int) -> list[str]:
    """An exception that the user catches, after gradients have left: never silently on."""
    model = Layers()
    optimizer = adam(model)
    hocket.distribute(model, optimizer, plan="ddp")
    try:
        for step in range(6):
            x, y = batch(rank, step)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            if step == 4:
                hook = model.first.weight.register_hook(lambda _: 1 / 0)
                try:
                    loss.backward()
                except ZeroDivisionError:
                    hook.remove()
                    continue
            loss.backward()
            optimizer.step()
    except HocketError as error:
        return [] if "an exception ended the last backward pass" in str(error) else [str(error)]
    return ["went on"]


def a_world_of_one(rank: int, world: int) -> list[str]:
    model = Layers()
    reference = copy.deepcopy(model)
    both = [(model, adam(model)), (reference, adam(reference))]
    hocket.distribute(*both[0])
    for step in range(12):
        x, y = batch(rank, step)
        for each, optimizer in both:
            optimizer.zero_grad()
            functional.cross_entropy(each(x), y).backward()
            optimizer.step()
    return differing("", reference.state_dict(), model.state_dict(), 0.0)


CASES = (
    dropped_gradients, replaced_gradients, steps_without_gradients, kept_gradients, hooks_of_users,
    weights_set_before_a_step, weights_clamped_after_a_step, averages_by_hand, pickled_optimizers,
    evaluation_in_inference_mode, buffers_changed_after_a_step, buffers_changed_on_the_first_rank,
    buffers_changed_later_on_the_first_rank, saved_from_a_thread, best_state_loaded, reads_on_new_paths,
    recursion, flushed_within_the_backward_pass, compiled_by_the_user, an_aborted_backward_pass,
    the_job_ends_before_the_model,
)  # fmt: skip


def all_of_them(rank: int, world: int) -> dict[str, list[str]]:
    return {case.__name__: case(rank) for case in CASES}
