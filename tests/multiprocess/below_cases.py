"""Weights, gradients and optimizer state read below Python's functions of torch, right after a step."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.utils.dlpack
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel

import hocket
from hocket.runtime.lazy.parameter import StaleParameter
from hocket.runtime.training import unnoticed_readers
from tests.multiprocess.odd_cases import STEPS, Layers, adam, batch, loop, plain
from tests.multiprocess.script_cases import refused
from tests.multiprocess.twins import Twins, differing, sliced_plan


@torch.jit.script
def scripted(w: torch.Tensor) -> torch.Tensor:
    return (w * w).sum()


@torch.jit.script
def scripted_list(w: list[torch.Tensor]) -> torch.Tensor:
    return (w[0] * w[0]).sum()


class Norm(nn.Module):
    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return (w * w).sum()


class Squares(torch.autograd.Function):
    """Has no backward pass."""

    @staticmethod
    def forward(ctx: Any, w: torch.Tensor) -> torch.Tensor:
        return (w * w).sum()


_OPERATORS = torch.library.Library("hocket_tests", "DEF")
_OPERATORS.define("total(Tensor w) -> Tensor")
_OPERATORS.impl("total", lambda w: w.detach().sum(), "CompositeExplicitAutograd")
_NORM = torch.jit.script(Norm())


def by_address(w: torch.Tensor) -> torch.Tensor:
    address = ctypes.cast(w.data_ptr(), ctypes.POINTER(ctypes.c_float))
    return torch.tensor(np.ctypeslib.as_array(address, (w.numel(),)).copy())


def by_storage(w: torch.Tensor) -> torch.Tensor:
    return torch.empty(0).set_(w.untyped_storage()).clone()


def by_file(w: torch.Tensor, **options: Any) -> torch.Tensor:
    file = io.BytesIO()
    torch.save([w], file, **options)
    file.seek(0)
    (read,) = torch.load(file)
    return read


def by_capsule(w: torch.Tensor) -> torch.Tensor:
    return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(w)).clone()


def by_broadcast(w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        dist.broadcast(w, 1)
    return w.detach().clone()


def by_group(w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        dist.group.WORLD.broadcast([w], dist.BroadcastOptions()).wait()
    return w.detach().clone()


def by_gathering(w: torch.Tensor) -> torch.Tensor:
    found = [torch.empty(w.shape) for _ in range(2)]
    with torch.no_grad():
        dist.all_gather(found, w)
    return torch.stack(found)


def by_trace(w: torch.Tensor) -> torch.Tensor:
    return torch.jit.trace(lambda w: (w * w).sum(), (w,), check_trace=False)(w)


def by_scripted_module(w: torch.Tensor) -> torch.Tensor:
    module = torch.jit.script(nn.Linear(8, 8, bias=False))
    module.weight = w
    return module(torch.ones(1, 8))


# Each returns something of what it finds.
READERS: dict[str, Callable[[Any], Any]] = {
    "TorchScript function": scripted,
    "TorchScript function, of a list": lambda w: scripted_list([w]),
    "TorchScript module": _NORM,
    "TorchScript attribute": by_scripted_module,
    "trace": by_trace,
    "operator": torch.ops.aten.sum.default,
    "operator of torch.library": lambda w: torch.ops.hocket_tests.total(w),
    "data_ptr": by_address,
    "untyped_storage": by_storage,
    "to_dlpack": by_capsule,
    "from_dlpack": lambda w: torch.from_dlpack(w.detach()).clone(),
    "numpy": lambda w: torch.tensor(w.detach().numpy()),
    "numpy's from_dlpack": lambda w: torch.tensor(np.from_dlpack(w.detach())),
    "__array__": lambda w: torch.tensor(np.array(w.detach())),
    "torch.save": by_file,
    "torch.save, legacy": lambda w: by_file(w, _use_new_zipfile_serialization=False),
    "pickle": lambda w: pickle.loads(pickle.dumps(w)),
    "queues of processes": lambda w: pickle.loads(bytes(ForkingPickler.dumps(w.detach().clone()))),
    "copy": lambda w: copy.copy(w).detach().clone(),
    "deepcopy": copy.deepcopy,
    "Parameter": lambda w: nn.Parameter(w).detach().clone(),
    "_foreach": lambda w: torch._foreach_norm([w])[0],
    "vmap": lambda w: torch.func.vmap(torch.sum)(w),
    "grad": lambda w: torch.func.grad(lambda w: w.square().sum())(w),
    "functionalize": lambda w: torch.func.functionalize(lambda w: w * 2)(w),
    "autograd.Function": Squares.apply,
    "parameters_to_vector": lambda w: nn.utils.parameters_to_vector([w]),
    "broadcast": by_broadcast,
    "broadcast of the group": by_group,
    "all_gather": by_gathering,
}


def read_below(rank: int) -> list[str]:
    """By every reader: a weight that is asked for after the step, and one that the script has had before."""
    twins = Twins(Layers, adam)
    found = loop(rank, twins)  # the model is known then
    held = {id(model): plain(model).first.weight for model, _, _ in twins.each()}
    for step, (name, read) in enumerate(READERS.items()):
        x, y = batch(rank, step)
        values = []
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            weights = held[id(model)], plain(model).second.weight
            if model is twins.ours and {type(w) for w in weights} != {StaleParameter}:
                found.append(f"{name}: nothing waits")
            values.append([read(w).detach() for w in weights])
        found += differing(name, *values)
    return found + twins.differences()


def losses_of_scripts(rank: int) -> list[str]:
    """Of weights, before the forward pass: their gradients are the weights' own."""
    twins = Twins(Layers, adam)
    for step in range(STEPS):
        x, y = batch(rank, step)
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            penalty = scripted(plain(model).first.weight) + scripted(plain(model).position)
            (functional.cross_entropy(model(x), y) + 0.1 * penalty).backward()
            optimizer.step()
    return twins.differences(1e-6)  # autograd adds up in another order


def gradients_below(rank: int) -> list[str]:
    """Between backward pass and step, when they may be on their way."""
    readers = {name: READERS[name] for name in READERS if name not in ("Parameter", "TorchScript attribute")}
    twins = Twins(Layers, adam)
    found = loop(rank, twins)
    for step, (name, read) in enumerate(readers.items()):
        x, y = batch(rank, step)
        values = []
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            values.append(read(plain(model).first.weight.grad).detach())
            optimizer.step()
        found += differing(name, *values)
    return found + twins.differences()


# What a script takes once, and reads from then on.
KEPT: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "capsule": (
        lambda w, _: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(w)),
        torch.Tensor.clone,
    ),
    "storage": (lambda w, _: w.untyped_storage(), lambda kept: torch.empty(0).set_(kept).clone()),
    "numpy": (lambda w, _: w.detach().numpy(), torch.tensor),
    "memoryview": (
        lambda w, _: memoryview(w.detach().numpy()),
        lambda kept: torch.tensor(np.array(kept)),
    ),
    "view": (lambda w, _: w.detach()[2:], torch.Tensor.clone),
    "state": (lambda _, o: o.state, lambda kept: torch.cat([s["exp_avg"].flatten() for s in kept.values()])),
    "state of one": (lambda w, o: o.state[w], lambda kept: kept["exp_avg"].clone()),
    "tensor of the state": (lambda w, o: o.state[w]["exp_avg"], torch.Tensor.clone),
    "view of the state": (lambda w, o: o.state[w]["exp_avg"].numpy(), torch.tensor),
    "copy of the optimizer": (
        lambda _, o: copy.copy(o),
        lambda kept: torch.cat([s["exp_avg"].flatten() for s in kept.state.values()]),
    ),
}


def kept_from_before(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    found = loop(rank, twins)
    for name, (take, read) in KEPT.items():
        kept = {id(m): take(plain(m).first.weight, optimizer) for m, optimizer, _ in twins.each()}
        values: dict[int, list[Any]] = {key: [] for key in kept}

        def look(
            _: int, model: nn.Module, __: Any, kept: Any = kept, read: Any = read, to: Any = values
        ) -> None:
            to[id(model)].append(read(kept[id(model)]))

        found += loop(rank, twins, after=look) + differing(name, *values.values())
        told = twins.ours.hocket.explain()
        if "holds by other names" not in told:
            found.append(f"{name}: nothing is said of it")
        del kept, values, look
    return found


def graphs_kept_from_before(rank: int) -> list[str]:
    """Who goes back through one after the step is told as without us."""
    twins = Twins(Layers, adam)
    loop(rank, twins)
    said = []
    for model, optimizer, _ in twins.each():
        weight = plain(model).head.weight
        loss = (weight * weight).sum()
        optimizer.zero_grad()
        (functional.cross_entropy(model(batch(rank, 0)[0]), batch(rank, 0)[1]) + 0 * loss).backward(
            retain_graph=True
        )
        optimizer.step()
        try:
            loss.backward()
            said.append("nothing")
        except RuntimeError as error:
            said.append(
                "modified by an inplace operation" if "inplace operation" in str(error) else str(error)
            )
    return [] if said[0] == said[1] != "nothing" else said


def functions_compiled_by_the_user(rank: int) -> list[str]:
    """Outside of the model; from the first one on, updates run within the step."""
    twins = Twins(Layers, adam)
    found = loop(rank, twins)
    for backend in ("eager", "aot_eager"):
        penalties = {}
        for model, _, _ in twins.each():
            weight, module = plain(model).first.weight, plain(model)
            held = torch.compile(lambda w=weight: (w * w).sum(), backend=backend)
            asked = torch.compile(lambda m=module: (m.second.weight * m.position).sum(), backend=backend)
            penalties[id(model)] = held, asked
        values: dict[int, list[Any]] = {key: [] for key in penalties}

        def look(_: int, model: nn.Module, __: Any, penalties: Any = penalties, to: Any = values) -> None:
            to[id(model)].append([penalty().detach() for penalty in penalties[id(model)]])

        found += loop(rank, twins, after=look) + differing(backend, *values.values())
    told = twins.ours.hocket.explain()
    return found + ([] if "functions that a user compiled" in told else [told])


def beside_extensions(rank: int) -> list[str]:
    """Which read addresses: nothing waits, and it is said why."""
    twins = Twins(Layers, adam)
    plain_list, unnoticed_readers.torch_extensions = unnoticed_readers.torch_extensions, lambda: ["probe.so"]
    waiting = []

    def look(_: int, model: nn.Module, __: Any) -> None:
        waiting.extend(
            name for name, p in vars(plain(model).first)["_parameters"].items() if type(p) is StaleParameter
        )

    try:
        found = loop(rank, twins, after=look)
    finally:
        unnoticed_readers.torch_extensions = plain_list
    told = twins.ours.hocket.explain()
    return found + waiting + ([] if "probe.so is loaded" in told else [told])


def averages_of_torch(rank: int) -> list[str]:
    twins = Twins(Layers, adam)
    averages = {id(model): AveragedModel(plain(model)) for model, _, _ in twins.each()}

    def average(_: int, model: nn.Module, __: Any) -> None:
        averages[id(model)].update_parameters(plain(model))

    found = loop(rank, twins, after=average)
    return found + differing("average", *(each.state_dict() for each in averages.values()))


def traced_and_exported(rank: int) -> list[str]:
    """What is made of a model after a step has that step's weights, and training goes on."""
    ones = torch.ones(2, 8)
    makers: list[Callable[[nn.Module], Any]] = [
        lambda m: torch.jit.trace(m, (ones,)),
        lambda m: torch.jit.trace(m.first, (ones,)),
        lambda m: torch.jit.script(copy.deepcopy(m)),
        lambda m: torch.export.export(m, (ones,), strict=False).module(),
        torch.fx.symbolic_trace,
        lambda m: torch.export.export(m, (ones,), strict=True).module(),
    ]
    twins = Twins(Layers, adam)
    found = loop(rank, twins)
    for step, make in enumerate(makers):
        x, y = batch(rank, step)
        outputs = []
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            outputs.append(make(plain(model))(ones).detach())
        found += differing(f"output {step}", *outputs)
    return found + twins.differences()


def shallow_copies(rank: int) -> list[str]:
    """Share parts and parameters with the model; copies and pickles have nothing of ours."""
    twins = Twins(Layers, adam)
    found = loop(rank, twins)
    ours = twins.ours
    copied, part = copy.copy(ours), copy.copy(ours.first)
    if not (
        copied.first is ours.first and copied.position is ours.position and part.weight is ours.first.weight
    ):
        found.append("a copy shares nothing")
    if hasattr(copied, "hocket") or copied._forward_pre_hooks or part._forward_pre_hooks:
        found.append("a copy has something of ours")
    both = pickle.loads(pickle.dumps((ours, ours.first)))
    if both[0].first is not both[1] or hasattr(both[0], "hocket") or both[1]._forward_pre_hooks:
        found.append("a pickle is not of the model as it was")
    x, y = batch(rank, 0)
    for step in range(STEPS):
        for model, optimizer, _ in twins.each():
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if not torch.equal(copied(x), twins.ddp.module(x)):
            found.append(f"the copy is behind in step {step}")
    return found + twins.differences()


def scripted_by_the_user(rank: int) -> list[str]:
    model = Layers()
    optimizer = adam(model)
    hocket.distribute(model, optimizer, plan=sliced_plan(model), timeout_s=60)
    wanted = "copy.deepcopy(model), or call model.hocket.detach() first"
    found = refused(wanted, lambda: torch.jit.script(model))
    found += refused(wanted, lambda: torch.jit.script(nn.Sequential(model.first)))
    model.hocket.detach()
    torch.jit.script(model)
    return found


CASES = (
    read_below, losses_of_scripts, gradients_below, kept_from_before, graphs_kept_from_before,
    functions_compiled_by_the_user, beside_extensions, averages_of_torch, traced_and_exported,
    shallow_copies, scripted_by_the_user,
)  # fmt: skip


def all_of_them(rank: int, _: int, only: list[str] | None = None) -> dict[str, list[str]]:
    return {case.__name__: case(rank) for case in CASES if only is None or case.__name__ in only}
