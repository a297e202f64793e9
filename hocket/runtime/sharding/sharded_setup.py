"""Begin sharded training: the plan, torch's sharding by it, and the optimizer, on every rank of a mesh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy

from hocket.errors import HocketError
from hocket.graph import Plan
from hocket.graph.plan import planned_for_others
from hocket.logs import logger
from hocket.runtime.sharding.kept_plan import PlanMemory, key_of
from hocket.runtime.sharding.module_units import modules_of_units
from hocket.runtime.sharding.optimizers import OptimizerOrFactory, check_optimizer, take_over
from hocket.runtime.sharding.plan_learning import PlanLearning, ShardPlanner, of_ranks
from hocket.runtime.sharding.shard_choice import ShardChoice
from hocket.runtime.sharding.shard_events import ShardEvents
from hocket.runtime.sharding.shardable import check_shardable, check_types, mesh_of
from hocket.runtime.sharding.sharded_handle import ShardedHandle
from hocket.runtime.sharding.sharded_model import ShardedModel
from hocket.runtime.sharding.torch_default import default_plan
from hocket.runtime.training.consistency import (
    check_same_arguments,
    check_same_model,
    check_same_units,
    wanted_plan,
)
from hocket.runtime.training.plan_source import PlanSource
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_tensors

_TIMEOUT = timedelta(seconds=1800)
_made: Counter[tuple[int, ...]] = Counter()
"""The number of groups that the ranks of a mesh have made together: the same on each of them."""


def shard(
    model: nn.Module,
    optimizer: OptimizerOrFactory,
    source: PlanSource[ShardPlanner | None],
    mesh: DeviceMesh | None,
    mp_policy: MixedPrecisionPolicy | None = None,
) -> torch.optim.Optimizer:
    """Shard ``model`` by the plan that ``source`` gives, and return its optimizer.

    ``model.hocket`` is its handle. Every rank of ``mesh``, all for None, calls this, and takes over the first
    one's parameters and buffers. Without a planner and a plan torch's own units hold.

    Raises
    ------
    HocketError
        When ranks differ in the model or the plan, or for what cannot be sharded.
    """
    inner: nn.Module = getattr(model, "_orig_mod", model)  # what torch.compile has made compiles it later
    check_shardable(inner)
    check_optimizer(optimizer, inner)
    mesh = mesh_of(mesh, inner)
    ranks = tuple(int(rank) for rank in mesh.mesh.flatten())
    own = default_plan(inner, len(ranks), beside=mesh.device_type == "cpu")
    _check_plan(source.plan or own, inner)
    control = _group(ranks)
    policy = own.policy if source.planner is None else source.planner.policy
    check_same_arguments({"plan": wanted_plan(source.plan, policy)}, control)
    check_same_model(dict(inner.named_parameters()), dict(inner.named_buffers()), control)
    choice = ShardChoice(plan=source.plan or own, ranks=len(ranks))
    if control.rank == 0:
        choice.report = logger.info
    memory = None
    if mp_policy is not None and source.planner is not None:
        why = "steps in mixed precision are not recorded yet; plan by hocket plan, and give the plan's file"
        choice.settle(f"it is torch's own, and no other was made: {why}")
    else:
        memory = _first_plan(choice, source, inner, mesh, control)
    check_same_units(choice.plan, control)
    if control.rank == 0 and (remark := planned_for_others(choice.plan, len(ranks))):
        logger.warning("%s", remark)
    if control.rank == 0 and mesh.device_type != "cpu":
        logger.warning("no GPU has run hocket.shard so far; look at losses beside torch's own fully_shard")
    _take_over_values(inner, control)
    names = {p: name for name, p in inner.named_parameters()}
    events = ShardEvents()
    sharded = ShardedModel(inner, choice.plan, mesh, events, mp_policy)
    made = take_over(optimizer, inner, names)
    learning = None
    if not choice.settled and memory is not None and source.planner is not None:
        if why := _hinders_learning(made, sharded, len(ranks)):
            choice.settle(f"it is torch's own, and no other was made: {why}")
        else:
            course = PlanLearning(sharded, choice, source.planner, memory)
            learning = course.run(control, _group(ranks))
            next(learning)
    _note_updates(made, events, (lambda: next(learning, None)) if learning is not None else None)
    handle = ShardedHandle(sharded, choice)
    for each in {inner, model}:
        vars(each)["hocket"] = handle
    return made


def _first_plan(
    choice: ShardChoice,
    source: PlanSource[ShardPlanner | None],
    model: nn.Module,
    mesh: DeviceMesh,
    control: GlooGroup,
) -> PlanMemory | None:
    """Settle ``choice`` where a plan was given, or kept by an earlier run; returns the memory of plans."""
    if source.plan is not None:
        choice.settle("it was given, and no other was tried")
        return None
    if source.planner is None:
        choice.settle("it was asked for, and no other was tried")
        return None
    if source.network is not None:
        choice.network, choice.network_given = of_ranks(source.network, choice.ranks), True
    key = key_of(source.planner.policy, model, mesh, control, choice.network)
    memory = PlanMemory(source.choices, control, key, choice)
    if (kept := memory.recall()) is not None:
        try:
            _check_plan(kept[0], model)
        except HocketError as error:
            choice.remark(f"what was kept is not taken: {error}")
        else:
            choice.plan = kept[0]
            choice.settle(kept[1])
    return memory


def _hinders_learning(optimizer: Any, sharded: ShardedModel, ranks: int) -> str:
    """The reason why no plan can be made from the first steps; "" where there is none."""
    if ranks == 1:
        return "one rank alone sends nothing"
    if not sharded.beside:
        return (
            "steps of GPUs are not recorded yet; profile one, plan by hocket plan, and give the plan's file"
        )
    if not sharded.sums_here:
        return "reduce-scatters are gloo's own here, and block steps"
    if sharded.mesh.ndim == 2:
        return "steps with replicas are not planned yet"
    if not isinstance(optimizer, torch.optim.Optimizer):
        return f"the {type(optimizer).__name__} is no torch.optim.Optimizer, whose steps can be counted"
    return ""


def _check_plan(plan: Plan, model: nn.Module) -> None:
    if plan.architecture != "fsdp":
        raise HocketError(
            f"plan '{plan.policy}' is for '{plan.architecture}'; sharded training takes one for 'fsdp'"
            " (hocket plan --architecture fsdp)"
        )
    check_types(model, modules_of_units(model, plan.units))


def _group(ranks: tuple[int, ...]) -> GlooGroup:
    _made[ranks] += 1
    return GlooGroup(ranks, f"hocket/shard/{'-'.join(map(str, ranks))}/{_made[ranks]}", _TIMEOUT)


def _take_over_values(model: nn.Module, control: GlooGroup) -> None:
    """Give every rank the first one's values: torch takes each rank's shard of what that rank has."""
    tensors = [t for t in (*model.parameters(), *model.buffers()) if t.numel()]
    if not any(t.is_meta for t in tensors):
        with torch.no_grad():
            broadcast_tensors(tensors, control)


def _note_updates(optimizer: Any, events: ShardEvents, then: Callable[[], Any] | None) -> None:
    """Have steps end with the optimizer's, and call ``then`` behind each."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return

    def begin(*_: Any) -> None:
        events.cut("update", None)

    def end(*_: Any) -> None:
        events.cut("updated", None)
        events.end_step()
        if then is not None:
            then()

    optimizer.register_step_pre_hook(begin)
    optimizer.register_step_post_hook(end)
