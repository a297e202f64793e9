"""Refusals of models that cannot be sharded, each in one line with the fix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parameter import is_lazy

from hocket.errors import HocketError
from hocket.runtime.sharding.module_units import ModuleUnit

_MESHES = "give a 1D DeviceMesh of the ranks, or a 2D one of replicas and shards"


def check_shardable(model: nn.Module) -> None:
    """Refuse a model that is wrapped, sharded or distributed already, or has parameters that cannot be cut.

    Raises
    ------
    HocketError
        Naming the part, and what to do about it.
    """
    if not isinstance(model, nn.Module):
        raise HocketError(f"the model is of type {type(model).__name__}; give a torch.nn.Module")
    for name, module in model.named_modules():
        part = f"'{name}' in the model" if name else "the model"
        kinds = {kind.__name__ for kind in type(module).__mro__}
        if wrapper := kinds & {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"}:
            raise HocketError(f"{part} is wrapped by {wrapper.pop()}; give hocket.shard the module itself")
        if "FSDPModule" in kinds:
            raise HocketError(
                f"{part} is sharded already (fully_shard); give hocket.shard the model as it was before that"
            )
        if "hocket" in vars(module):
            raise HocketError(f"{part} is distributed already; call its hocket.detach() first")
        if isinstance(module, torch.jit.ScriptModule):
            raise HocketError(f"{part} is TorchScript, which takes no hooks; give what was scripted")
    _check_parameters(model)


def _check_parameters(model: nn.Module) -> None:
    for name, p in model.named_parameters():
        if is_lazy(p):
            raise HocketError(
                f"'{name}' is lazy and has no shape yet; run a forward pass before hocket.shard"
            )
        if hasattr(p, "device_mesh"):
            raise HocketError(
                f"'{name}' is a DTensor, sharded already; give hocket.shard the model as it was before that"
            )
        if not (p.is_floating_point() or p.is_complex()):
            raise HocketError(
                f"'{name}' is of {str(p.dtype).removeprefix('torch.')}, and only floating point parameters"
                " can be sharded; make it a buffer (register_buffer)"
            )
        if p.dim() == 0:
            raise HocketError(
                f"'{name}' is a scalar, which cannot be cut into shards; make it a tensor of one element"
            )
    if not any(p.requires_grad for p in model.parameters()):
        raise HocketError("no parameter of the model requires a gradient; there is nothing to train")


def check_types(model: nn.Module, found: Sequence[ModuleUnit]) -> None:
    """Refuse a unit that would gather trained parameters of several types in one all-gather.

    Raises
    ------
    HocketError
        Naming the unit and two of its parameters.
    """
    names = {p: name for name, p in model.named_parameters()}
    taken: set[nn.Parameter] = set()
    for unit in found:
        first: nn.Parameter | None = None
        for p in (p for module in unit.modules for p in module.parameters()):
            if p in taken or not p.requires_grad:
                continue
            taken.add(p)
            first = p if first is None else first
            if p.dtype != first.dtype:
                raise HocketError(
                    f"unit {unit.index} of the plan has '{names[first]}' of {_name(first)} and '{names[p]}'"
                    f" of {_name(p)}, and a unit has one type; put them into units of their own"
                )


def _name(p: nn.Parameter) -> str:
    return str(p.dtype).removeprefix("torch.")


def mesh_of(mesh: DeviceMesh | None, model: nn.Module) -> DeviceMesh:
    """The mesh to shard over: the one that is given, else all ranks, on the device of the model.

    Raises
    ------
    HocketError
        When there is no process group, or the mesh is none that shards are cut for.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise HocketError("there is no process group; call torch.distributed.init_process_group first")
    if mesh is None:
        kind = next(model.parameters()).device.type
        if kind == "meta":
            kind = "cuda" if "nccl" in str(dist.get_backend()) else "cpu"
        return init_device_mesh(kind, (dist.get_world_size(),))
    if not isinstance(mesh, DeviceMesh):
        raise HocketError(f"the mesh is of type {type(mesh).__name__}; {_MESHES}")
    if mesh.ndim not in (1, 2):
        raise HocketError(f"the mesh has {mesh.ndim} dimensions; {_MESHES}")
    if mesh.ndim == 2 and mesh.mesh_dim_names is None:
        raise HocketError(f"the dimensions of the 2D mesh have no names; {_MESHES}, with mesh_dim_names")
    if mesh.get_coordinate() is None:
        raise HocketError("this rank is not in the mesh; call hocket.shard on the ranks in it only")
    return mesh
