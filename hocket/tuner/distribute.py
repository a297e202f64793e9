"""``hocket.distribute``: real training under a plan, the user's or the best that was found and tried."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.graph.format_rules import check_whole
from hocket.launch import ServedJob, job_of_environment
from hocket.launch.environment import whole_number
from hocket.logs import show_log
from hocket.network import Network, load_network
from hocket.planner import plan as plan_by_policy
from hocket.planner.allreduce_baselines import ddp
from hocket.planner.bytescheduler import bytescheduler, partition_of
from hocket.sim import simulate
from hocket.tuner.ddp_keywords import buffers_synced
from hocket.tuner.plan_argument import PlanArgument, resolve_argument
from hocket.tuner.policies import Exchange, make_plan
from hocket.tuner.server_plans import ServingPlanner, resolve_server_plan

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.nn import Module
    from torch.optim import Optimizer

M = TypeVar("M", bound="Module")
Opt = TypeVar("Opt", bound="Optimizer | Sequence[Optimizer]")

_BUCKETS_MB = (1, 5)  # DDP users try these; it is 25 that they have if they do not
_PARTITIONS = (0.5, 1.0, 2.0, 4.0)  # of the planner's own choice
_MOST_TRIED = 3
_ALIKE = 1.02
_ITERATIONS = 4
_TIMEOUT_S = 1800.0

_served_jobs: set[tuple[ServedJob, int]] = set()
"""The jobs that this process has brought a model to, and as which worker."""


def distribute(
    model: M,
    optimizer: Opt,
    *,
    plan: PlanArgument | None = None,
    network: Network | None = None,
    process_group: ProcessGroup | None = None,
    compile: bool = False,  # noqa: A002
    init_sync: bool | None = True,
    broadcast_buffers: bool | None = True,
    timeout_s: float | None = None,
    **ddp_keywords: Any,
) -> tuple[M, Opt]:
    """Train a model on all ranks of a process group, in place of DistributedDataParallel.

    The usual loop stays as it is. Started by ``hocket train --architecture ps`` it trains with parameter
    servers: "auto" is TAC then, the handle a :class:`hocket.runtime.ps.worker.server_handle.ServedHandle`,
    no process group is needed, and ``process_group``, ``compile`` and ``init_sync=False`` are refused.

    Parameters
    ----------
    model
        The model, on the CPU; hooks are attached to it.
    optimizer
        Its optimizer, or a list of several.
    plan
        "auto" profiles the first steps, plans, tries the best plans beside DistributedDataParallel's own and
        keeps the fastest; a policy's name plans by it; a :class:`hocket.Plan` or a plan file's path holds as
        it is. None: the environment's HOCKET_PLAN, a path or a name, else "auto".
    network
        The network to plan for, rank 0's for all ranks. None: that of the file that the environment's
        HOCKET_NETWORK names, else it is measured.
    process_group
        The ranks that train together; None: all.
    compile
        Run the step through torch.compile, its backward pass in the plan's order.
    init_sync
        Give every rank rank 0's parameters first (None, too); False: ranks have the same already.
    broadcast_buffers
        Give every rank rank 0's buffers in each training pass (None, too); False: ranks keep their own.
    timeout_s
        Seconds that no wait takes longer than; None: 1800. With parameter servers at most the job's timeout,
        which None stands for.
    ddp_keywords
        DistributedDataParallel's other keywords: taken where they change nothing here, and refused with what
        to use where they would.

    Returns
    -------
    The same two objects. ``model.hocket`` is a
    :class:`hocket.runtime.training.allreduce_handle.AllReduceHandle`: ``explain()`` says which plan is in
    force and why, ``plan`` is it. HOCKET_TIMELINE in the environment names a file that rank 0 writes at the
    end: the last 8 steps of all ranks (with servers, of worker 0) as ``hocket.timeline/1``.

    Raises
    ------
    UnknownNameError
        When no policy or plan file, or no keyword, has that name.
    FormatError
        When a plan's or a network's file is none, or the plan does not fit the model.
    HocketError
        When there is no process group or this rank is not in it, ranks differ in the model or the plan, and
        for what cannot be trained this way.

    Examples
    --------
    >>> import hocket, torch
    >>> import torch.distributed as dist
    >>> # A script for torchrun gives "gloo" alone.
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> model, optimizer = hocket.distribute(model, optimizer)
    >>> model(torch.ones(3, 4)).sum().backward()
    >>> optimizer.step()
    >>> model.hocket.plan.policy
    'ddp'
    >>> dist.destroy_process_group()
    """
    from hocket import runtime

    show_log()
    init_sync = init_sync is None or init_sync
    buffers = buffers_synced(ddp_keywords, broadcast_buffers)
    wanted = plan if plan is not None else os.environ.get("HOCKET_PLAN", "auto")
    if network is None and (path := os.environ.get("HOCKET_NETWORK")):
        network = load_network(path).network()
    job = job_of_environment()
    if job is not None:
        without = ("compile=True", compile), ("a process group", process_group is not None)
        for what, asked in (*without, ("init_sync=False", not init_sync)):
            if asked:
                raise HocketError(
                    f"{what} is for training without servers; leave it out, or --architecture ps"
                )
        _serve(model, optimizer, wanted, network, job, buffers.in_forward, timeout_s)
        return model, optimizer
    given, policy = resolve_plan(wanted)
    runtime.distribute(
        model,
        optimizer,
        runtime.PlanSource(planner=_Planner(policy), plan=given, network=network),
        runtime.TrainingRanks(process_group, _TIMEOUT_S if timeout_s is None else timeout_s),
        runtime.RankZeroValues(init_sync, buffers.at_start, buffers.in_forward),
        compile=compile,
        timeline_path=os.environ.get("HOCKET_TIMELINE"),
    )
    return model, optimizer


def _serve(
    model: Module,
    optimizer: Optimizer | Sequence[Optimizer],
    argument: PlanArgument,
    network: Network | None,
    job: ServedJob,
    broadcast_buffers: bool,
    timeout_s: float | None,
) -> None:
    """Train with the parameter servers of ``job``."""
    from hocket.runtime import PlanSource
    from hocket.runtime.ps.server_training import serve

    worker = whole_number("RANK", 0)
    if (job, worker) in _served_jobs:
        # Its servers may have ended, and would be waited for in vain.
        raise HocketError(
            f"worker {worker} has brought a model to this job already, and a job trains one; put all of them"
            " in one module with one optimizer, or train each in a job of its own"
        )
    given, policy = resolve_server_plan(argument)
    limit_s = job.timeout_s if timeout_s is None else min(timeout_s, job.timeout_s)
    serve(
        model,
        optimizer,
        PlanSource(planner=ServingPlanner(policy, job.seed, job.rule.barrier), plan=given, network=network),
        job=msgspec.structs.replace(job, timeout_s=limit_s),
        worker=worker,
        broadcast_buffers=broadcast_buffers,
        timeline_path=os.environ.get("HOCKET_TIMELINE"),
    )
    _served_jobs.add((job, worker))


def resolve_plan(argument: PlanArgument) -> tuple[Plan | None, str]:
    """The plan that is given, or that a file holds, and else the policy that is to make one.

    Raises
    ------
    FormatError, HocketError
        When it is neither, or a plan that is not for AllReduce or has reductions in halves.
    """
    given, policy = resolve_argument(argument, "allreduce")
    if given is not None and given.architecture != "allreduce":
        raise HocketError(
            f"plan '{given.policy}' is for '{given.architecture}'; training takes one for 'allreduce'"
        )
    if given is not None:
        check_whole(given, "plan" if isinstance(argument, Plan) else str(argument), "training")
    return given, policy


@dataclass(frozen=True)
class _Planner:
    """Plans for :mod:`hocket.runtime.training.plan_selection`; ``policy``: "auto" for whatever is best."""

    policy: str

    @property
    def on_trial(self) -> bool:
        return self.policy == "auto"

    @property
    def needs_times(self) -> bool:
        return self.policy != "ddp"

    def baseline(self, graph: StepGraph) -> Plan:
        return plan_by_policy(graph, Network(), "ddp")

    def candidates(self, graph: StepGraph, network: Network) -> Sequence[Plan]:
        if self.policy != "auto":
            return [make_plan(graph, network, self.policy, Exchange(architecture="allreduce")).plan]
        plans, known = best_plans(graph, network), [self.baseline(graph).reductions]
        for mb in _BUCKETS_MB:
            made = ddp(graph, network, mb << 20)
            if made.reductions not in known:  # as those of small models are
                known.append(made.reductions)
                plans.append(msgspec.structs.replace(made, policy=f"ddp {mb} MB"))
        return plans


def best_plans(graph: StepGraph, network: Network) -> list[Plan]:
    """The plans for ``graph`` to try, the one that looks best in simulation first, each under its own name.

    Of those that differ by hardly anything there, the one with the fewest transfers and the one with the most
    are among them: what each costs the processors is not simulated, nor how long a large one holds up an
    urgent one where ranks are out of step. They are simulated on the typical step: in the few steps of a
    profile one that was disturbed would decide.
    """
    partition = partition_of(network)
    plans = [plan_by_policy(graph, network, "caramel")]
    # A chain of operations has one order; another one is worth a plan where it changes what is ready when.
    free = bool(np.diff(graph.inputs.indptr).max(initial=0) > 1)
    for factor in _PARTITIONS:
        size = round(factor * partition)
        for ordered in (False, True) if free else (False,):
            made = bytescheduler(graph, network, size, ordered=ordered)
            if any((made.reductions, made.compute_order) == (p.reductions, p.compute_order) for p in plans):
                continue  # as where no gradient is larger than a slice
            name = f"bytescheduler {size / 1e6:.3g} MB{', ordered' if ordered else ''}"
            plans.append(msgspec.structs.replace(made, policy=name))
    step = graph.typical()
    seconds = {
        plan.policy: simulate(step, plan, network, iterations=_ITERATIONS).row.iteration_s for plan in plans
    }
    ranked = sorted(plans, key=lambda plan: seconds[plan.policy])
    least_s = seconds[ranked[0].policy]
    alike = [plan for plan in ranked if seconds[plan.policy] <= _ALIKE * least_s]
    fewest = min(alike, key=lambda plan: len(plan.reductions))
    most = max(alike, key=lambda plan: len(plan.reductions))
    by_name = {plan.policy: plan for plan in (ranked[0], fewest, most, *ranked)}
    return list(by_name.values())[:_MOST_TRIED]
