"""Updates at odd moments: in a reader's own mode, in a signal's handler, before a fork; and failing ones."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset

import hocket
from hocket.errors import HocketError
from hocket.graph import Plan, Reduction
from tests.multiprocess.odd_cases import STEPS, Layers, Statistics, adam, batch, loop, plain
from tests.multiprocess.script_cases import refused
from tests.multiprocess.twins import Twins, differing, sliced_plan


def traced(rank: int) -> list[str]:
    def trace(_: int, model: nn.Module, __: Any) -> None:
        torch.jit.trace(plain(model), torch.ones(2, 8))

    return loop(rank, Twins(Layers, adam), after=trace)


class Slopes(nn.Module):
    """Computes by a transform, behind a layer that is read outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.inner = nn.Linear(8, 8), Layers()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda x: self.inner(x).square().sum())(self.layer(x))


def transforms_within_the_model(rank: int) -> list[str]:
    return loop(rank, Twins(Slopes, adam))


class Refusing(TorchFunctionMode):
    """Only lets a layer be applied."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.linear:
            return func(*args, **(kwargs or {}))
        raise AssertionError(f"{func} is none of the model's")


def looked_at_in_modes(rank: int) -> list[str]:
    def look(step: int, model: nn.Module, _: Any) -> None:
        mode = FakeTensorMode(allow_non_fake_inputs=True) if step % 2 else Refusing()
        x = torch.ones(2, 8)
        with torch.no_grad(), mode:
            plain(model).head(x)

    return loop(rank, Twins(Layers, adam), after=look)


def before_its_result(call: Callable[..., Any], handler: Callable[[], object]) -> Callable[..., Any]:
    """``call``, and once, before its result is used, what a signal's handler does."""
    handlers = [handler]

    def called(*args: Any) -> Any:
        result = call(*args)
        while handlers:
            handlers.pop()()
        return result

    return called


def a_handler_finishes_what_has_arrived(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    channel = twins.ours.hocket._training.rounds.channel
    has_arrived = channel.has_arrived

    def once(_: int, model: nn.Module, __: Any) -> None:
        channel.has_arrived = before_its_result(has_arrived, plain(model).state_dict)

    return loop(rank, twins, after=once)


def a_handler_finishes_what_a_step_leaves(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    training = twins.ours.hocket._training
    stepping = training.stepping

    def once(_: int, __: nn.Module, ___: Any) -> None:
        training.stepping = before_its_result(stepping, training.finish_transfers)

    return loop(rank, twins, between=once)


def _values_in_child(model: nn.Module, pipe: Any) -> None:
    torch.set_num_threads(1)
    try:
        pipe.send([model(torch.ones(1, 8)).tolist(), model(torch.ones(1, 8)).tolist()])
    except HocketError as error:
        pipe.send(str(error))


def in_child(model: nn.Module) -> Any:
    """What a forked child says of ``model``; None where it says nothing in time."""
    context = multiprocessing.get_context("fork")
    mine, other = context.Pipe()
    child = context.Process(target=_values_in_child, args=(model, other), daemon=True)
    child.start()
    said = mine.recv() if mine.poll(10) else None
    child.kill()
    return said


def forked_children_see_the_last_step(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    said: dict[int, list[Any]] = {id(model): [] for model in (twins.ddp, twins.ours)}

    def fork(step: int, model: nn.Module, _: Any) -> None:
        if step in (0, 6):
            said[id(model)].append(in_child(plain(model)))

    return loop(rank, twins, after=fork) + differing("said", *said.values(), 1e-6)


def forked_children_wait_for_nothing(rank: int) -> list[str]:
    model = Layers()
    optimizer = adam(model)
    hocket.distribute(model, optimizer, plan=sliced_plan(model), timeout_s=20)
    said: list[Any] = []
    rounds = model.hocket._training.rounds
    for step in range(STEPS):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step == 6:  # by another thread than this one, so far as we can tell
            trains, rounds.thread = rounds.thread, -1
            said.append(in_child(model))
            rounds.thread = trains
    return [] if "in a process forked from the one that trains" in str(said[0]) else [f"{said}"]


def loaders_that_fork(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    rows = TensorDataset(
        *(torch.cat(parts) for parts in zip(*(batch(rank, s) for s in range(4)), strict=True))
    )
    for _ in range(2):
        for model, optimizer, _ in twins.each():
            for x, y in DataLoader(rows, 4, num_workers=2, multiprocessing_context="fork"):
                optimizer.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    return twins.differences()


def optimizers_of_the_same_class(rank: int) -> list[str]:
    """Made where one is waiting: they are of the plain class, and have a state of their own."""
    twins = Twins(Layers, adam)
    found: list[str] = []

    def make(_: int, __: nn.Module, optimizer: Any) -> None:
        other = nn.Linear(8, 3)
        made = type(optimizer)(other.parameters(), lr=0.01)
        other(torch.ones(2, 8)).sum().backward()
        made.step()
        if type(made) is not torch.optim.Adam or len(made.state) != 2:
            found.append(f"{type(made)}, {len(made.state)} states")

    return loop(rank, twins, after=make) + found


class Halves(nn.Module):
    """Two models that one optimizer updates."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), Layers()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def one_optimizer_of_two_models(rank: int) -> list[str]:
    twins = Twins(Halves, adam)
    ours, optimizer, found = twins.ours, twins.optimizers[1], []
    ours.hocket.detach()
    for detached in ([ours.first, ours.second], [ours.second, ours.first]):
        for part in (ours.first, ours.second):
            hocket.distribute(part, optimizer, plan=sliced_plan(part))
        for step in range(STEPS):
            x, y = batch(rank, step)
            for model, each in zip((twins.ddp, ours), twins.optimizers, strict=True):
                each.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                each.step()
        found += differing("", twins.ddp.module.state_dict(), ours.state_dict())
        told = ours.second.hocket.explain()
        if "replaced" in told or "another model" not in told:
            found.append(told)
        detached[0].hocket.detach()
        detached[1].hocket.detach()
        if "step" in vars(optimizer) or type(optimizer) is not torch.optim.Adam:
            found.append("something is left")
    return found


def printed_gradients(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    shown: dict[int, list[str]] = {id(optimizer): [] for optimizer in twins.optimizers}

    def show(_: int, model: nn.Module, optimizer: Any) -> None:
        shown[id(optimizer)] += [repr(p.grad) for p in plain(model).head.parameters()]

    found = loop(rank, twins, between=show)
    theirs, ours = shown.values()
    return found + ([] if theirs == ours else [ours[0]])


def a_model_that_is_never_called(rank: int) -> list[str]:
    told = []
    for name in ("forward", "__call__"):
        model = Statistics()
        optimizer = adam(model)
        hocket.distribute(model, optimizer, plan="ddp")
        for step in range(4):
            x, y = batch(rank, step)
            optimizer.zero_grad()
            functional.cross_entropy(getattr(model, name)(x), y).backward()
            optimizer.step()
        told.append("call the model" in model.hocket.explain())
    return [] if told == [True, False] else [f"{told}"]


def updates_that_fail(rank: int) -> list[str]:
    """Half of the parameters have theirs: no step is to go on from there."""
    model = Layers()
    optimizer = adam(model)
    hocket.distribute(model, optimizer, plan=sliced_plan(model))
    for step in range(6):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    optimizer.param_groups[0]["betas"] = None
    functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.param_groups[0]["betas"] = (0.9, 0.999)
    # While training waits for what is read first it updates what has arrived, and that would fail first.
    rounds = model.hocket._training.rounds
    for bucket in list(rounds.unfinished):
        rounds.channel.wait(bucket)
    try:
        model(x)
    except TypeError:
        return refused("an update of 'position' did not run to its end (TypeError: ", lambda: model(x))
    return ["the update did not fail"]


class Many(nn.Module):
    """More parameters than updates are put off of one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Linear(8, 8) for _ in range(60)), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.stack([layer(x) for layer in self.layers]).sum(0).tanh())


def _by_fives(model: nn.Module, windows: Sequence[Literal["backward", "forward"]]) -> Plan:
    names = [name for name, _ in model.named_parameters()]
    reductions = tuple(
        Reduction(parameters=tuple(names[k : k + 5]), window=windows[k // 5 % len(windows)])
        for k in range(0, len(names), 5)
    )
    return Plan(policy="", model="", architecture="allreduce", reductions=reductions, compute_order=None)


def many_small_parameters(rank: int) -> list[str]:
    """In two groups whose rates change, by two steps in some turns, with transfers that are late or not."""

    def optimize(model: nn.Module) -> torch.optim.Optimizer:
        parameters = list(model.parameters())
        return torch.optim.AdamW(
            [{"params": parameters[::2]}, {"params": parameters[1::2], "lr": 0.02}], lr=0.01
        )

    def act(step: int, model: nn.Module, optimizer: Any) -> None:
        if step % 3 == 2 and isinstance(model, Many):
            time.sleep(0.05)  # until all have arrived
        if step % 4 == 3:
            optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.9

    found = []
    for windows in (("backward",), ("forward",), ("backward", "forward")):
        found += loop(rank, Twins(Many, optimize, plan=_by_fives(Many(), windows)), between=act, after=act)
    return found


CASES = (
    traced, transforms_within_the_model, looked_at_in_modes, a_handler_finishes_what_has_arrived,
    a_handler_finishes_what_a_step_leaves, forked_children_see_the_last_step,
    forked_children_wait_for_nothing, loaders_that_fork, optimizers_of_the_same_class,
    one_optimizer_of_two_models, printed_gradients, a_model_that_is_never_called, many_small_parameters,
    updates_that_fail,
)  # fmt: skip


def all_of_them(rank: int, _: int, only: list[str] | None = None) -> dict[str, list[str]]:
    return {case.__name__: case(rank) for case in CASES if only is None or case.__name__ in only}
