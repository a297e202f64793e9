"""What scripts do to optimizers, buffers and hooks in the middle of a training, and what is refused of it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn import functional

import hocket
from hocket.errors import HocketError
from tests.multiprocess import odd_cases
from tests.multiprocess.odd_cases import STEPS, Layers, adam, batch, loop, plain
from tests.multiprocess.setups import sgd
from tests.multiprocess.twins import Twins, differing, sliced_plan


def optimizer_state_read_and_reset(rank: int) -> list[str]:
    """Right after a step: what a log line shows, moments set to zero, and all of the state replaced."""
    twins = Twins(Layers, adam)
    read: dict[int, list[float]] = {id(optimizer): [] for optimizer in twins.optimizers}

    def look(step: int, model: nn.Module, optimizer: Any) -> None:
        states = [optimizer.state[p] for p in plain(model).head.parameters()]
        read[id(optimizer)] += [state["exp_avg"].sum().item() for state in states]
        if step == 3:
            for state in optimizer.state.values():
                state["exp_avg"].zero_()
        if step == 5:
            optimizer.state = type(optimizer.state)(dict, {p: {} for p in optimizer.state})

    found = loop(rank, twins, after=look)
    theirs, ours = read.values()
    return found + ([] if theirs == ours else [f"{theirs} and {ours}"])


def optimizers_keep_their_class(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    loop(rank, twins)
    ours = twins.optimizers[1]
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))]
    found = [f"{type(each)}" for each in copies if type(each) is not torch.optim.Adam]
    twins.ours.hocket.detach()
    return found + ([] if type(ours) is torch.optim.Adam else ["it has another class"])


class Own(nn.Parameter):
    """A parameter of a class of its own."""


class OwnParameters(nn.Module):
    """Read directly, such a parameter cannot tell of it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(8, 8), Own(torch.randn(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).tanh() @ self.head


def parameters_of_a_class_of_their_own(rank: int) -> list[str]:
    def clamp(_: int, model: nn.Module, __: Any) -> None:
        plain(model).head.data.clamp_(-0.5, 0.5)

    return loop(rank, Twins(OwnParameters, adam), after=clamp)


def weights_of_compiled_parts_clamped(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    held = {id(model): list(plain(model).second.parameters()) for model in (twins.ddp, twins.ours)}
    for model in (twins.ddp.module, twins.ours):
        model.second.compile(backend="eager")

    def clamp(_: int, model: nn.Module, __: Any) -> None:
        for p in held[id(model)]:
            p.data.clamp_(-0.1, 0.1)

    return loop(rank, twins, after=clamp)


class Scaled(Layers):
    """Returns a parameter beside what it computes."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x), self.position


def parameters_among_the_outputs(rank: int) -> list[str]:
    """They keep no hook of ours."""
    model = Scaled()
    optimizer = adam(model)
    hocket.distribute(model, optimizer, plan=sliced_plan(model))
    for step in range(STEPS):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        scores, position = model(x)
        (functional.cross_entropy(scores, y) + position.sum()).backward()
        optimizer.step()
    hooks = model.position._backward_hooks or {}
    return [f"{len(hooks)} hooks"] if hooks else []


class Tables(nn.Module):
    """Tables of many types beside statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        kinds = (torch.uint8, torch.int16, torch.bfloat16, torch.float64, torch.complex64)
        for k, kind in enumerate(kinds):
            self.register_buffer(f"table{k}", torch.arange(3).to(kind))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layer(x)))


def buffers_of_many_types(rank: int) -> list[str]:
    """Also of those that gloo, and so DistributedDataParallel on it, does not know."""
    model = Tables()
    if rank:
        for k in range(5):
            getattr(model, f"table{k}").zero_()
    optimizer = sgd(model)
    hocket.distribute(model, optimizer, plan="ddp", timeout_s=20)
    for step in range(4):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    tables = [getattr(model, f"table{k}").real.long() for k in range(5)]
    return [f"{table}" for table in tables if not torch.equal(table, torch.arange(3))]


def transforms_of_functions(rank: int) -> list[str]:
    """Between steps, with an update still to come: gradients of single examples, and a Jacobian."""
    twins = Twins(Layers, adam)
    x, y = batch(0, 0)
    seen: dict[int, list[float]] = {id(model): [] for model in (twins.ddp, twins.ours)}

    def transform(_: int, model: nn.Module, __: Any) -> None:
        inner = plain(model)

        def loss(values: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(torch.func.functional_call(inner, values, (x[None],)), y[None])

        jacobian = torch.func.jacrev(inner)(x[0])
        values = {name: p.detach() for name, p in inner.named_parameters()}
        single = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(values, x, y)
        seen[id(model)] += [jacobian.sum().item(), *(value.sum().item() for value in single.values())]

    found = loop(rank, twins, after=transform)
    theirs, ours = seen.values()
    return found + ([] if theirs == ours else [f"{theirs} and {ours}"])


def clipped_as_torch_compiled_it(rank: int) -> list[str]:
    """What torch.compile returns is clipped as the model in it."""
    twins = Twins(Layers, adam)
    models = [torch.compile(model, backend="eager") for model in (twins.ddp, twins.ours)]
    for step in range(4):
        x, y = batch(rank, step)
        for model, optimizer in zip(models, twins.optimizers, strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            if model is models[1]:
                hocket.clip_grad_norm_(model, 0.1)
            else:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
    return twins.differences()


def frozen_and_trained_again(rank: int) -> list[str]:
    def freeze(step: int, model: nn.Module, _: Any) -> None:
        if step in (3, 5):
            plain(model).second.requires_grad_(step == 5)

    return loop(rank, Twins(Layers, adam, unused=True), before=freeze)


def refused(wanted: str, call: Callable[[], object]) -> list[str]:
    try:
        call()
    except HocketError as error:
        return [] if wanted in str(error) else [str(error)]
    return ["nothing was refused"]


def what_was_frozen_is_not_trained_unseen(rank: int) -> list[str]:
    model = Layers()
    model.first.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hocket.distribute(model, optimizer, plan="ddp")
    for step in range(5):
        x, y = batch(rank, step)
        model.first.requires_grad_(step == 4)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        if step < 4:
            loss.backward()
            optimizer.step()
    return refused("'first.weight' was frozen when hocket.distribute was called", loss.backward)


def gradients_dropped_in_a_hook(rank: int) -> list[str]:
    """As where an optimizer steps within the backward pass."""
    model = Layers()
    hocket.distribute(model, adam(model), plan="ddp")

    def step(p: torch.Tensor) -> None:
        p.grad = None

    model.head.bias.register_post_accumulate_grad_hook(step)
    x, y = batch(rank, 0)
    loss = functional.cross_entropy(model(x), y)
    return refused("a hook dropped the gradient of 'head.bias'", loss.backward)


def what_cannot_be_distributed(rank: int) -> list[str]:
    lazy = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(lazy[1].parameters(), lr=0.1)
    found = refused("'0.weight' is lazy and has no shape yet", lambda: hocket.distribute(lazy, optimizer))
    inner = Layers()
    hocket.distribute(inner, adam(inner), plan="ddp")
    outer = nn.Sequential(inner)
    again = refused("a part of it is already distributed", lambda: hocket.distribute(outer, adam(outer)))
    scripted = torch.jit.script(nn.Linear(2, 2))
    found += refused("is TorchScript", lambda: hocket.distribute(scripted, adam(scripted)))
    return found + again + differing("", inner.hocket.plan.policy, "ddp")


def what_is_parallel_already(rank: int) -> list[str]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    cpu = torch.device("cpu")
    column = parallelize_module(nn.Sequential(nn.Linear(4, 4)), mesh, {"0": ColwiseParallel()})
    found = []
    for model, text in (
        (nn.parallel.DistributedDataParallel(Layers()), "the model is wrapped by DistributedDataParallel"),
        (
            nn.Sequential(nn.parallel.DistributedDataParallel(nn.Linear(2, 2))),
            "'0' in the model is wrapped by DistributedDataParallel",
        ),
        (FullyShardedDataParallel(nn.Linear(2, 2), device_id=cpu), "is sharded by FullyShardedDataParallel"),
        (fully_shard(nn.Linear(2, 2), mesh=mesh), "'weight' is a DTensor, sharded by FSDP2"),
        (column, "'0.weight' is a DTensor"),
    ):
        found += refused(text, lambda model=model: hocket.distribute(model, adam(model)))
    later = nn.Sequential(nn.Linear(4, 4))
    hocket.distribute(later, adam(later), plan="ddp")
    fully_shard(later, mesh=mesh)
    advice = (
        "on CPUs over gloo only: give the model as it was before to hocket.shard, or keep FSDP and train"
        " without Hocket"
    )
    found += refused(
        f"tensor parallelism) after hocket.distribute, which trains whole models, {advice}",
        lambda: later(torch.ones(2, 4)),
    )
    return found + refused(advice, lambda: hocket.distribute(column, adam(column)))


CASES = (
    optimizer_state_read_and_reset, optimizers_keep_their_class, parameters_of_a_class_of_their_own,
    weights_of_compiled_parts_clamped, parameters_among_the_outputs, buffers_of_many_types,
    transforms_of_functions, clipped_as_torch_compiled_it, frozen_and_trained_again,
    what_was_frozen_is_not_trained_unseen, gradients_dropped_in_a_hook, what_cannot_be_distributed,
    what_is_parallel_already,
)  # fmt: skip


def all_of_them(rank: int, world: int) -> dict[str, list[str]]:
    """These and the other odd ones, the last of which ends the job."""
    mine = {case.__name__: case(rank) for case in CASES}
    return mine | odd_cases.all_of_them(rank, world)
