"""One configuration of a prediction, planned and lowered: what every run of it shares."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.graph.clipped_step import clipped_for
from hocket.graph.update_operations import is_update
from hocket.network import Network, Topology
from hocket.planner import Architecture
from hocket.planner.named_planners import USUAL
from hocket.predictor.kernel_run import RunSettings
from hocket.predictor.lowering import ExchangeRules, WorkerStep, lower_worker_step
from hocket.predictor.prediction_request import Mode, Request
from hocket.predictor.racks import ring_of
from hocket.predictor.unlike_steps import uneven_s
from hocket.sim.barrier_steps import BarrierStep
from hocket.sim.lowering.lowered import Lowered
from hocket.sim.step_runs import lower, lower_for_one
from hocket.tuner.policies import Exchange, check_request, make_plan, own_architecture

WINDOW_BYTES = 28e6  # gRPC's flow control on average (Li et al., ICPE 2020, section 3.2.2)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A configuration planned and lowered.

    ``step`` is None where steps overlap: then the simulator of :mod:`hocket.sim` runs ``plan``.
    """

    request: Request
    network: Network
    topology: Topology
    speeds: tuple[float, ...]
    mode: Mode
    plan: Plan
    rules: ExchangeRules
    step: WorkerStep | None

    @cached_property
    def lowered(self) -> Lowered:
        """The step and its plan as the simulator runs them, where steps overlap."""
        return lower(self.request.graph, self.plan, self.network)

    @cached_property
    def lowered_for_one(self) -> Lowered:
        """As ``lowered``, of one worker that stands for all."""
        return lower_for_one(self.request.graph, self.plan, self.network)

    @cached_property
    def barrier_step(self) -> BarrierStep | None:
        """The step where updates wait for all reductions, drawn without an event loop; None where not."""
        if self.rules.drawn_anew:
            return None
        return BarrierStep.of(self.request.graph, self.plan, self.network)

    @property
    def step_on_servers(self) -> WorkerStep:
        """A worker's step as it is on servers, also where steps overlap and ``step`` is None."""
        rules = ExchangeRules(synchronous=True, drawn_anew=self.rules.drawn_anew)
        return self.step or _lowered(self.request.graph, self.plan, self.network, rules)

    @property
    def needed(self) -> int:
        """The number of workers whose gradients complete a synchronous step; 0: asynchronous."""
        return self.network.num_workers - self.request.machines.backup if self.mode == "sync" else 0

    @property
    def ends_a_step(self) -> int:
        """The number of workers whose steps end one after another in each; 1 where all end together."""
        return 1 if self.needed else self.network.num_workers

    @property
    def alone_throughput(self) -> float | None:
        """Examples/s of the profiled worker without a network; None if it computes nothing of a step.

        Updates on servers are no part of it.
        """
        graph = self.request.graph
        own = ~is_update(graph) if self.plan.architecture == "ps" else np.ones(graph.num_operations, bool)
        computing_s = float(graph.durations_s[own].sum(axis=0).mean())
        return graph.batch_size / computing_s if computing_s > 0 else None

    @property
    def uneven_s(self) -> float | None:
        """Seconds of a step that its slowest worker takes longer than on average; None where none is awaited.

        None also with backup workers, whose slowest ones are not awaited.
        """
        if self.needed < self.network.num_workers:
            return None
        if self.step is not None:
            program = self.step.program
            samples_s = self.step.durations_s[:, program.lane[: program.num_timed] == 0].sum(axis=1)
        else:
            samples_s = self.request.graph.durations_s.sum(axis=0)
        return uneven_s(samples_s, self.speeds)

    @property
    def start_s(self) -> tuple[float, ...] | None:
        """Seconds at which each worker begins, on the machine profiled; None: all at once."""
        if self.step is None or not self.request.machines.spread:
            return None
        num_workers, computing_s = self.network.num_workers, self.step.demand.worker_s
        return tuple(computing_s * w / num_workers for w in range(num_workers))

    def run_settings(self, seed: int) -> RunSettings:
        """Settings of a run that draws with that seed."""
        return RunSettings(
            window_bits=self.rules.window_bits,
            startup_s=self.network.startup_s,
            speeds=self.speeds,
            start_s=self.start_s,
            shuffled=self.rules.drawn_anew,
            needed=self.needed,
            seed=seed,
        )

    @property
    def lockstep(self) -> bool:
        """True if some asynchronous workers have nothing that could pull them apart.

        All measured steps are one and the same, all workers begin at once, and two at least are alike in
        speed, link and rack.
        """
        if self.mode == "sync" or self.request.machines.spread or self.rules.drawn_anew:
            return False
        if np.ptp(self.request.graph.durations_s, axis=1).any():
            return False
        places = zip(self.speeds, self.topology.worker_bps, self.topology.worker_rack.tolist(), strict=True)
        return len(set(places)) < len(self.speeds)


def prepare(request: Request, num_workers: int, num_servers: int) -> Prepared:
    """Plan and lower for that many workers and servers.

    Raises
    ------
    FormatError, HocketError
        When the request does not fit together, or not with so many machines.
    """
    machines = request.machines
    network = machines.network(request.network, num_workers, num_servers)
    architecture = _architecture(request)
    if request.clip:
        request = dataclasses.replace(request, graph=clipped_for(request.graph, architecture))
    graph = request.graph
    policy = request.policy or USUAL[architecture]
    mode = request.mode or ("async" if architecture == "ps" else "sync")
    _check(request, mode, architecture, num_workers)
    window_bytes = request.window_bytes
    if window_bytes is None:
        window_bytes = network.window_bytes
    if window_bytes is None:
        window_bytes = usual_window_bytes(mode)
    # Plans are made for synchronous steps; in asynchronous training their transfers meet the window later.
    network = dataclasses.replace(network, window_bytes=window_bytes if mode == "sync" else 0.0)
    servers = num_servers if architecture == "ps" else 0
    topology = machines.topology(request.network, num_workers, servers)
    if architecture != "ps":
        network = ring_of(network, topology)
    if request.plan is not None:
        check_request(graph, network, architecture)
        plan, drawn_anew = request.plan, False
    else:
        exchange = Exchange(
            architecture=architecture,
            barrier=request.barrier,
            fusion_bytes=request.fusion_bytes,
            clip=request.clip,
            memory_bytes=request.memory_bytes,
        )
        planned = make_plan(graph, network, policy, exchange, seed=request.seed, budget_s=request.budget_s)
        plan, drawn_anew = planned.plan, planned.drawn_anew
    overlapping = architecture != "ps" or (mode == "sync" and plan.barrier == "parameter")
    commits = request.updates == "commit"
    if overlapping and commits:
        raise HocketError(
            "updates 'commit': only for parameter servers, asynchronous or with a barrier per step;"
            " leave it out"
        )
    if overlapping and machines.backup:
        what = f"{machines.backup} backup workers"
        raise HocketError(f"{what}: only for parameter servers with a barrier per step; leave it out")
    rules = ExchangeRules(
        synchronous=mode == "sync", window_bits=8.0 * window_bytes, drawn_anew=drawn_anew, commits=commits
    )
    step = None
    if not overlapping:
        # No worker's step knows how many others there are: most policies plan alike for all of them.
        step = _lowered(graph, plan, dataclasses.replace(network, num_workers=1), rules)
    return Prepared(
        request=request,
        network=network,
        topology=topology,
        speeds=machines.speeds_of(num_workers),
        mode=mode,
        plan=plan,
        rules=rules,
        step=step,
    )


@lru_cache(maxsize=16)
def _lowered(graph: StepGraph, plan: Plan, network: Network, rules: ExchangeRules) -> WorkerStep:
    return lower_worker_step(graph, plan, network, rules)


def usual_window_bytes(mode: Mode) -> float:
    """The HTTP/2 window unless one is asked for; 0: off."""
    return WINDOW_BYTES if mode == "async" else 0.0


def _architecture(request: Request) -> Architecture:
    """The way gradients are exchanged: the plan's way, the one asked for, the policy's.

    Where none of them decides: by servers, if anything that only they have is asked for, else by AllReduce.
    """
    if request.plan is not None:
        return request.plan.architecture
    if request.architecture is not None:
        return request.architecture
    return own_architecture(request.policy) or ("ps" if request.needs_servers else "allreduce")


def _check(request: Request, mode: Mode, architecture: Architecture, num_workers: int) -> None:
    backup = request.machines.backup
    if mode == "async" and architecture != "ps":
        what = "an all-reduce keeps" if architecture == "allreduce" else "collectives keep"
        raise HocketError(f"mode 'async' needs parameter servers; {what} workers together: use sync")
    if mode == "async" and request.barrier is not None:
        raise HocketError(f"barrier '{request.barrier}': asynchronous training has none; use --mode sync")
    if mode == "async" and backup:
        raise HocketError(f"{backup} backup workers: asynchronous training waits for nobody; use --mode sync")
    if architecture != "ps" and request.machines.server_bps is not None:
        what = "all-reduce has" if architecture == "allreduce" else "fully sharded training has"
        raise HocketError(f"a bandwidth of servers: {what} none; leave it out")
    if mode == "sync" and request.machines.spread:
        raise HocketError("spread: synchronous workers begin every step together; use --mode async")
    if backup >= num_workers:
        raise HocketError(
            f"{backup} backup workers of {num_workers} leave none to wait for; use fewer, or more workers"
        )
