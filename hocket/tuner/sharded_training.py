"""``hocket.shard``: fully sharded training (torch's FSDP2) in the units and with the prefetch of a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from hocket.errors import HocketError, UnknownNameError
from hocket.graph import Plan, StepGraph, load_plan
from hocket.logs import show_log
from hocket.network import Network, load_network
from hocket.tuner.plan_argument import AUTO, PlanArgument
from hocket.tuner.policies import own_architecture, policy_names
from hocket.tuner.policies import plan as plan_by_policy

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from torch.nn import Module, Parameter
    from torch.optim import Optimizer

    from hocket.runtime.sharding.plan_learning import ShardPlanner

M = TypeVar("M", bound="Module")

_ARCHITECTURE: Any = "fsdp"
_TORCHS = "fsdp"
"""The policy that is torch's own, for which nothing has to be known of the step."""


def shard(
    model: M,
    optimizer: Callable[[Iterator[Parameter]], Any] | Optimizer,
    *,
    plan: PlanArgument = AUTO,
    mesh: DeviceMesh | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
) -> tuple[M, Any]:
    """Shard a model over all ranks by torch's ``fully_shard``, in the units and with the prefetch of a plan.

    The model is torch's own FSDP2 model then: the usual loop, ``torch.nn.utils.clip_grad_norm_``,
    ``torch.distributed.checkpoint`` and ``torch.compile`` stay as they are, and parameters come out the same
    whatever the plan. On processors all-gathers and reduce-scatters run beside computing, which torch's own
    do on GPUs alone. On GPUs nobody has run it yet.

    Parameters
    ----------
    model
        The model as it is on every rank before any sharding; it is sharded in place.
    optimizer
        A function that makes the optimizer of the sharded parameters it is given, or an optimizer of the
        model that has not stepped: it goes on with the shards for parameters.
    plan
        "fsdp": a unit a block, each gathered while the one before it computes. "auto" begins so, profiles the
        first steps, plans, and changes prefetch at once; a plan with other units, which cannot be changed
        once a model is sharded, is kept in the folder that HOCKET_CACHE names, and the next run begins with
        it. Other policies of architecture "fsdp" go the same way. A :class:`hocket.Plan` of that
        architecture, or the path of one's file, holds as it is.
    mesh
        The ranks, a ``torch.distributed.DeviceMesh``: of one dimension, or of two with names, the first of
        them replicas (HSDP). None: all ranks, on the device of the model.
    mp_policy
        A ``torch.distributed.fsdp.MixedPrecisionPolicy`` for all units, as ``fully_shard`` takes it: types in
        which parameters are gathered and gradients reduced. Such steps are not profiled: "auto" and other
        policies keep torch's own units, and ``explain()`` says so.

    Returns
    -------
    The same model, and its optimizer. ``model.hocket`` is a
    :class:`hocket.runtime.sharding.sharded_handle.ShardedHandle`: ``explain()`` says which plan is in force
    and why, ``plan`` is it.

    Raises
    ------
    UnknownNameError
        When no policy or plan file has that name.
    FormatError
        When a plan's file is none.
    HocketError
        When there is no process group, ranks differ in the model or the plan, a unit of the plan is no set of
        whole modules, and for what cannot be sharded.

    Examples
    --------
    >>> import hocket, torch
    >>> import torch.distributed as dist
    >>> # A script for torchrun gives "gloo" alone.
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> model, optimizer = hocket.shard(model, lambda parameters: torch.optim.AdamW(parameters, lr=3e-4))
    >>> model(torch.ones(3, 4)).sum().backward()
    >>> optimizer.step()
    >>> model.hocket.plan.policy
    'fsdp'
    >>> dist.destroy_process_group()
    """
    from hocket import runtime
    from hocket.runtime.sharding import sharded_setup

    show_log()
    path = os.environ.get("HOCKET_NETWORK")
    given = _given_plan(plan)
    planner: ShardPlanner | None = None
    if given is None and isinstance(plan, str) and plan != _TORCHS:
        planner = _UnitPlanner(plan)
    source = runtime.PlanSource(
        planner=planner,
        plan=given,
        network=load_network(path).network() if path else None,
        choices=runtime.folder_of_environment(),
    )
    return model, sharded_setup.shard(model, optimizer, source, mesh, mp_policy)


class _UnitPlanner:
    """Plans for :mod:`hocket.runtime.sharding.plan_learning`; planners are loaded when it is asked."""

    def __init__(self, policy: str) -> None:
        self.policy = policy

    def plans(self, graph: StepGraph, network: Network, own: Plan) -> tuple[Plan, Plan]:
        if self.policy == AUTO:
            from hocket.tuner.shard_plans import best_plans

            return best_plans(graph, network, own)
        made = plan_by_policy(graph, network, self.policy, architecture=_ARCHITECTURE)
        return made if made.units == own.units else own, made


def _given_plan(argument: PlanArgument) -> Plan | None:
    """The plan that is given, or that a file holds; None where a policy is named."""
    if isinstance(argument, Plan):
        return argument
    if isinstance(argument, str):
        names = [AUTO, _TORCHS]
        names += [
            name for name in policy_names() if own_architecture(name) == _ARCHITECTURE and name not in names
        ]
        if argument in names:
            return None
        if not os.path.exists(argument) and not argument.endswith((".json", ".json.zst", ".json.gz")):
            raise UnknownNameError("policy or plan file", argument, names)
    elif not isinstance(argument, os.PathLike):
        raise HocketError(
            f"plan {argument!r} is no plan; give one, the path of its file, or a policy's name, such as"
            f" '{AUTO}'"
        )
    return load_plan(os.fspath(argument))
