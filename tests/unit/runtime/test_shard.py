"""What ``hocket.shard`` refuses, each in one line with the fix, and what it leaves as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import hocket
from hocket.errors import HocketError
from hocket.runtime.sharding.torch_default import default_plan


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def told(model: Any, optimizer: Any = sgd, **options: Any) -> str:
    with pytest.raises(HocketError) as refused:
        hocket.shard(model, optimizer, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_there_has_to_be_a_process_group() -> None:
    assert told(layers()) == ("there is no process group; call torch.distributed.init_process_group first")


@pytest.mark.usefixtures("alone")
def test_parameters_that_cannot_be_cut_are_refused() -> None:
    model = layers()
    model.table = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)
    assert told(model) == (
        "'table' is of int64, and only floating point parameters can be sharded; make it a buffer"
        " (register_buffer)"
    )
    model.table = nn.Parameter(torch.tensor(1.0))
    assert told(model).startswith("'table' is a scalar, which cannot be cut into shards; make it")
    assert told(nn.Sequential(nn.LazyLinear(3))).startswith("'0.weight' is lazy and has no shape yet")
    assert told(layers().requires_grad_(False)).startswith("no parameter of the model requires a gradient")
    assert told(3).startswith("the model is of type int; give a torch.nn.Module")


@pytest.mark.usefixtures("alone")
def test_types_that_differ_within_a_unit_are_refused() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).double()))
    plan = hocket.Plan(
        policy="one",
        model="Sequential",
        architecture="fsdp",
        units=(tuple(name for name, _ in model.named_parameters()),),
        reshard_after_forward=(False,),
        compute_order=None,
    )
    assert told(model, plan=plan) == (
        "unit 0 of the plan has '0.0.weight' of float32 and '0.1.weight' of float64, and a unit has one type;"
        " put them into units of their own"
    )


@pytest.mark.usefixtures("alone")
def test_wrapped_and_sharded_models_are_refused() -> None:
    assert told(nn.parallel.DistributedDataParallel(layers())) == (
        "the model is wrapped by DistributedDataParallel; give hocket.shard the module itself"
    )
    model = layers()
    hocket.shard(model, sgd)
    assert told(model).startswith(
        "the model is sharded already (fully_shard); give hocket.shard the model as"
    )
    part = layers()
    torch.distributed.fsdp.fully_shard(part[0])
    assert told(part).startswith("'0' in the model is sharded already (fully_shard)")
    distributed = layers()
    hocket.distribute(distributed, sgd(distributed.parameters()))
    assert told(distributed).startswith("the model is distributed already; call its hocket.detach() first")
    distributed.hocket.detach()


@pytest.mark.usefixtures("alone")
def test_plans_of_other_models_kinds_and_names_are_refused() -> None:
    model = layers()
    other = default_plan(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), 1)
    assert told(model, plan=other) == (
        "unit 1 of the plan has '1.weight', and the model, a Sequential, has no such parameter; make a plan"
        " of this model"
    )
    reductions = hocket.Plan(
        policy="ddp", model="", architecture="allreduce", compute_order=None, reductions=()
    )
    assert told(model, plan=reductions).startswith(
        "plan 'ddp' is for 'allreduce'; sharded training takes one"
    )
    assert told(model, plan="fsdpp").startswith(
        "policy or plan file 'fsdpp' is unknown; did you mean 'fsdp'?"
    )
    assert told(model, plan=3).startswith(
        "plan 3 is no plan; give one, the path of its file, or a policy's name"
    )
    assert told(model, plan="nowhere.json").startswith("nowhere.json: cannot be read")


@pytest.mark.usefixtures("alone")
def test_meshes_that_shards_are_not_cut_for_are_refused() -> None:
    assert told(layers(), mesh=2).startswith("the mesh is of type int; give a 1D DeviceMesh of the ranks, or")
    three = torch.distributed.init_device_mesh("cpu", (1, 1, 1), mesh_dim_names=("a", "b", "c"))
    assert told(layers(), mesh=three).startswith("the mesh has 3 dimensions; give a 1D DeviceMesh")
    unnamed = torch.distributed.init_device_mesh("cpu", (1, 1))
    assert told(layers(), mesh=unnamed).startswith("the dimensions of the 2D mesh have no names")


@pytest.mark.usefixtures("alone")
def test_optimizers_that_would_train_nothing_are_refused() -> None:
    model = layers()
    assert told(model, 3).startswith("the optimizer is of type int; give a function that makes one, such as")
    assert told(model, sgd(layers().parameters())).startswith("the SGD has a parameter of shape (8, 4) that")
    stepped = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    stepped.step()
    assert told(model, stepped).startswith("the AdamW has a state of the whole parameters already; shard the")
    before = list(model.parameters())
    assert told(model, lambda _: sgd(before)).startswith(
        "the SGD has parameters that are not the sharded model's"
    )
    assert told(layers(), lambda _: 3).startswith("the optimizer's function returned a int; have it return")


@pytest.mark.usefixtures("alone")
def test_what_torch_compiled_is_sharded_within_and_returned() -> None:
    model = layers()
    compiled = torch.compile(model, backend="eager")
    returned, optimizer = hocket.shard(compiled, sgd)
    assert returned is compiled
    compiled(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    assert compiled.hocket is model.hocket
    assert isinstance(model, torch.distributed.fsdp.FSDPModule)


@pytest.mark.usefixtures("alone")
def test_a_model_on_no_device_yet_is_sharded_and_filled_afterwards() -> None:
    with torch.device("meta"):
        model = layers()
    model, optimizer = hocket.shard(model, sgd)
    model.to_empty(device="cpu")
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    assert all(torch.isfinite(p.to_local()).all() for p in model.parameters())


@pytest.mark.usefixtures("alone")
def test_the_handle_answers() -> None:
    model, optimizer = hocket.shard(layers(), sgd)
    handle = model.hocket
    assert handle.settled
    assert handle.phase == "settled"
    assert handle.next_plan is handle.profile is handle.network is None
    assert handle.timeline.spans == ()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        norm = hocket.clip_grad_norm_(model, 1.0)
        optimizer.step()
    assert norm.ndim == 0
    assert handle.timeline.spans
    assert "no whole step" not in handle.explain()


class Tied(nn.Module):
    """Logits by the embedding's weight, which a function reads."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(x, self.embedding.weight)


@pytest.mark.usefixtures("alone")
def test_a_unit_is_not_called_before_its_model() -> None:
    model, _ = hocket.shard(Tied(), sgd, plan="fsdp")
    with pytest.raises(HocketError) as refused:
        model.blocks[0](torch.ones(1, 4))
    assert str(refused.value) == (
        "'blocks.0.0' was called outside of the model's forward(), which gathers what it needs; call the"
        " model, or name the method that was called instead by"
        " torch.distributed.fsdp.register_fsdp_forward_method(model, NAME)"
    )
    model(torch.zeros(1, dtype=torch.int64)).sum().backward()
    assert model.blocks[0](torch.ones(1, 4)).shape == (1, 4)


@pytest.mark.usefixtures("alone")
def test_a_method_that_torch_was_told_of_may_call_units() -> None:
    model = Tied()
    model.encode = lambda x: model.blocks[0](x)
    model, _ = hocket.shard(model, sgd, plan="fsdp")
    torch.distributed.fsdp.register_fsdp_forward_method(model, "encode")
    assert model.encode(torch.ones(1, 4)).shape == (1, 4)


@pytest.mark.usefixtures("alone")
def test_a_tied_weight_that_a_function_reads_while_it_is_sharded_is_named_with_the_fix() -> None:
    names = [name for name, _ in Tied().named_parameters()]
    units = [tuple(name for name in names if name.startswith(part)) for part in ("embedding", "blocks")]
    plan = hocket.Plan(
        policy="apart",
        model="Tied",
        architecture="fsdp",
        units=tuple(units),
        reshard_after_forward=(True, True),
        compute_order=None,
    )
    model, _ = hocket.shard(Tied(), sgd, plan=plan)
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor") as failed:
        model(torch.zeros(1, dtype=torch.int64))
    (note,) = failed.value.__notes__
    assert note.startswith("hocket.shard: a parameter was read while it was sharded, by a function or")
    assert "such as the root's (plan='fsdp')" in note
    of_root, _ = hocket.shard(Tied(), sgd, plan="fsdp")
    of_root(torch.zeros(1, dtype=torch.int64)).sum().backward()
