"""``hocket.distribute``: real training under a plan, the user's or the best that was found and tried."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.launch import ServedJob, job_of_environment
from hocket.launch.environment import whole_number
from hocket.logs import show_log
from hocket.network import Network, load_network
from hocket.network.fit_quality import OF_ALL_REDUCE, fit_grade
from hocket.planner import POLICIES
from hocket.planner import plan as plan_by_policy
from hocket.planner.named_planners import BUILT_IN
from hocket.tuner.ddp_keywords import buffers_synced
from hocket.tuner.plan_argument import AUTO, PlanArgument, resolve_argument
from hocket.tuner.planning_process import MadePlans, PlanningProcess, PlanRequest
from hocket.tuner.server_plans import ServingPlanner, resolve_server_plan

if TYPE_CHECKING:
    from torch import dtype
    from torch.distributed import ProcessGroup
    from torch.nn import Module
    from torch.optim import Optimizer

M = TypeVar("M", bound="Module")
Opt = TypeVar("Opt", bound="Optimizer | Sequence[Optimizer]")

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
    gradient_dtype: dtype | None = None,
    init_sync: bool | None = True,
    broadcast_buffers: bool | None = True,
    timeout_s: float | None = None,
    **ddp_keywords: Any,
) -> tuple[M, Opt]:
    """Train a model on all ranks of a process group, in place of DistributedDataParallel.

    The usual loop stays as it is. Started by ``hocket train --architecture ps`` it trains with parameter
    servers: "auto" is TAC then, the handle a :class:`hocket.runtime.ps.worker.server_handle.ServedHandle`,
    no process group is needed, and ``process_group``, ``compile``, ``gradient_dtype`` and ``init_sync=False``
    are refused.

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
    gradient_dtype
        torch.bfloat16 or torch.float16: float32 and float64 gradients travel so, in half the bytes or a
        quarter, as with DistributedDataParallel's bf16_compress_hook and fp16_compress_hook. Parameters and
        gradients keep their type; sparse gradients are refused. None: gradients travel as they are.
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
    force and why, ``plan`` is it. Of "auto", the plan that was chosen is kept in the folder that HOCKET_CACHE
    names (by default the user's cache folder; empty or "off": nowhere), and the next run begins with it.
    HOCKET_TIMELINE in the environment names a file that rank 0 writes at the end: the last 8 steps of all
    ranks (with servers, of worker 0) as ``hocket.timeline/1``.

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
    wanted = plan if plan is not None else os.environ.get("HOCKET_PLAN") or AUTO
    network_grade = ""
    if network is None and (path := os.environ.get("HOCKET_NETWORK")):
        file = load_network(path)
        network, network_grade = file.network(), fit_grade(file, OF_ALL_REDUCE) or ""
    job = job_of_environment()
    if job is not None:
        without = ("compile=True", compile), ("a process group", process_group is not None)
        others = ("gradient_dtype", gradient_dtype is not None), ("init_sync=False", not init_sync)
        for what, asked in (*without, *others):
            if asked:
                raise HocketError(
                    f"{what} is for training without servers; leave it out, or --architecture ps"
                )
        _serve(model, optimizer, wanted, network, job, buffers.in_forward, timeout_s)
        return model, optimizer
    given, policy = resolve_plan(wanted)
    limit_s = _TIMEOUT_S if timeout_s is None else timeout_s
    runtime.distribute(
        model,
        optimizer,
        runtime.PlanSource(
            planner=_Planner(policy, limit_s),
            plan=given,
            network=network,
            network_grade=network_grade,
            choices=runtime.folder_of_environment(),
        ),
        runtime.TrainingRanks(process_group, limit_s),
        runtime.RankZeroValues(init_sync, buffers.at_start, buffers.in_forward),
        runtime.StepSettings(compile, gradient_dtype),
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
        When it is neither, or a plan that is not for AllReduce.
    """
    given, policy = resolve_argument(argument, "allreduce")
    if given is not None and given.architecture != "allreduce":
        raise HocketError(
            f"plan '{given.policy}' is for '{given.architecture}'; training takes one for 'allreduce'"
        )
    return given, policy


@dataclass
class _Planner:
    """Plans for :mod:`hocket.runtime.training.plan_selection`; ``policy``: "auto" for whatever is best.

    They are made in a process of their own, within ``timeout_s``: planners take 60 MB and more to load, which
    the one that trains would keep. Where a script has planners of its own, that process would not know them.
    """

    policy: str
    timeout_s: float = _TIMEOUT_S
    _process: PlanningProcess | None = field(default=None, init=False)

    @property
    def on_trial(self) -> bool:
        return self.policy == AUTO

    @property
    def needs_times(self) -> bool:
        return self.policy != "ddp"

    def baseline(self, graph: StepGraph) -> Plan:
        return plan_by_policy(graph, Network(), "ddp")

    def prepare(self) -> None:
        if self.on_trial and POLICIES == BUILT_IN:
            with contextlib.suppress(HocketError):  # then none can be started later, which is said
                self._process = PlanningProcess()

    def wait_until_prepared(self, limit_s: float) -> None:
        if self._process is None or self._process.has_ended:
            self.prepare()  # as where a kept choice was there, and does not hold
        if self._process is not None:
            self._process.wait_until_loaded(min(limit_s, self.timeout_s / 4))  # others wait for us
            self._process.recede()

    def rest(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def begin(self, graph: StepGraph, network: Network) -> PlanningProcess | MadePlans:
        process, self._process = self._process, None
        if POLICIES != BUILT_IN:
            from hocket.tuner.training_plans import plans_for

            return MadePlans(plans_for(self.policy, graph, network))
        if process is None or process.has_ended:
            process = PlanningProcess()
            if self.on_trial:
                process.recede()
        process.ask(PlanRequest(self.policy, graph, network), self.timeout_s)
        return process
