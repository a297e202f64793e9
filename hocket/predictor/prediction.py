"""What a number of workers and servers will reach: one prepared configuration, run with several seeds.

Source: throughput-prediction paper, sections 3.4 and 5; synchronous training, backup workers and AllReduce
are ours.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from hocket.graph.csr import Indices
from hocket.intervals import interval_95
from hocket.network import reduction_s
from hocket.planner import Architecture
from hocket.predictor.baselines import Totals, cynthia, lin
from hocket.predictor.prepared import Prepared
from hocket.predictor.request import Mode
from hocket.predictor.run import run_steps
from hocket.predictor.usage import Usage, of_reductions, of_servers
from hocket.sim.lowered import Floats
from hocket.sim.steady import step_times

LARGEST_SEED = 2**63 - 1  # kernels count in 64 bits; larger seeds wrap around


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration: the keys of ``predict --json``.

    ``throughput``: examples a second over all workers; ``step_s``: seconds a worker takes for a step, the
    mean; ``events`` and ``wall_s``: operations and transfers simulated, and how long that took.
    ``throughput_low`` and ``throughput_high``: the 95% confidence interval over repeated seeds, None for a
    single one. ``bottleneck``: the resource that is busy longest, and its ``bottleneck_utilization``. ``lin``
    and ``cynthia``: what those models of asynchronous training say, examples a second. ``lockstep``: workers
    never drift apart, for want of sampled durations. ``cost_per_example``: in the currency of the prices, if
    there are any.
    """

    workers: int
    servers: int
    mode: Mode
    throughput: float
    step_s: float
    events: int
    wall_s: float
    architecture: Architecture
    policy: str
    throughput_low: float | None = None
    throughput_high: float | None = None
    bottleneck: str
    bottleneck_utilization: float
    lin: float | None = None
    cynthia: float | None = None
    lockstep: bool = False
    cost_per_example: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run: seconds a step, examples a second, what was simulated, and how busy everything was."""

    step_s: float
    throughput: float
    events: int
    wall_s: float
    usage: Usage


def run(prepared: Prepared, seed: int, watch: Indices | None = None) -> Outcome:
    """Simulate ``prepared`` with one seed; ``watch`` as :func:`hocket.predictor.run.run_steps` takes it."""
    request, network = prepared.request, prepared.network
    seed &= LARGEST_SEED
    started = time.perf_counter()
    num_workers, batch_size = network.num_workers, request.graph.batch_size
    if prepared.step is None:
        seconds, events = step_times(
            request.graph,
            prepared.plan,
            network,
            iterations=request.steps - request.skip,
            seed=seed,
            random_order=prepared.drawn_anew,
            speeds=prepared.speeds,
            topology=prepared.topology if prepared.plan.architecture == "ps" else None,
        )
        step_s, counted = float(seconds.mean()), num_workers
        rates = np.full(num_workers, 1 / step_s if step_s > 0 else 0.0)
    else:
        each = 1 if prepared.needed else num_workers
        ends, finishers = run_steps(
            prepared.step,
            prepared.topology,
            each * request.steps,
            window_bits=prepared.window_bits,
            startup_s=network.startup_s,
            speeds=prepared.speeds,
            start_s=prepared.start_s,
            shuffled=prepared.drawn_anew,
            needed=prepared.needed,
            seed=seed,
            watch=watch,
        )
        skipped = each * request.skip
        from_s = float(ends[skipped - 1]) if skipped else 0.0
        step_s = (float(ends[-1]) - from_s) / (request.steps - request.skip)
        counted = prepared.needed or num_workers
        rates = _rates(ends, finishers, skipped, from_s, num_workers)
        events = num_workers * request.steps * prepared.step.num_events
    return Outcome(
        step_s=step_s,
        throughput=counted * batch_size / step_s if step_s > 0 else 0.0,
        events=events,
        wall_s=time.perf_counter() - started,
        usage=_usage(prepared, rates),
    )


def _rates(ends: Floats, finishers: Indices, skipped: int, from_s: float, num_workers: int) -> Floats:
    """Steps a second of each worker after the skipped ones, (W,)."""
    span_s = float(ends[-1]) - from_s
    if span_s <= 0:
        return np.zeros(num_workers)
    if finishers[-1] < 0:
        return np.full(num_workers, (len(ends) - skipped) / span_s)
    return np.bincount(finishers[skipped:], minlength=num_workers) / span_s


def _usage(prepared: Prepared, rates: Floats) -> Usage:
    if prepared.plan.architecture == "allreduce":
        size = dict(
            zip(
                prepared.request.graph.parameter_names,
                prepared.request.graph.parameter_bytes.tolist(),
                strict=True,
            )
        )
        network_s = sum(
            reduction_s(prepared.network, sum(size[name] for name in batch.parameters), batch.chunks)
            for batch in prepared.plan.reductions
        )
        worker_s = float(prepared.request.graph.durations_s.sum(axis=0).mean())
        return of_reductions(rates, prepared.speeds, worker_s, network_s)
    return of_servers(
        prepared.step_on_servers,
        prepared.topology,
        prepared.speeds,
        rates,
        startup_s=prepared.network.startup_s,
        synchronous=prepared.mode == "sync",
    )


def totals_of(prepared: Prepared) -> Totals | None:
    """What coarse models of asynchronous training know of a prepared step; None where they say nothing.

    They know one kind of link, the servers'; slower workers' links or racks are none of theirs.
    """
    topology = prepared.topology
    if prepared.mode == "sync" or prepared.step is None:
        return None
    if topology.racks > 1 or min(topology.worker_bps) < max(topology.server_bps):
        return None
    demand = prepared.step.demand
    server_bps = np.array(prepared.topology.server_bps)
    return Totals(
        batch_size=prepared.request.graph.batch_size,
        downlink_s=float((demand.pull_bits / server_bps).max()),
        worker_s=demand.worker_s / float(np.mean(prepared.speeds)),
        uplink_s=float((demand.push_bits / server_bps).max()),
        server_s=float(demand.server_s.max()),
    )


def summed_up(
    prepared: Prepared,
    outcomes: Sequence[Outcome],
    price_per_worker_hour: float | None,
    price_per_server_hour: float | None,
) -> Prediction:
    """One row of all runs of a configuration; their means, and the interval where there are several."""
    throughputs = np.array([outcome.throughput for outcome in outcomes])
    throughput = float(throughputs.mean())
    low, high = interval_95(throughputs)
    network, totals = prepared.network, totals_of(prepared)
    servers = network.num_servers if prepared.plan.architecture == "ps" else 0
    resource, busy = Usage.mean([outcome.usage for outcome in outcomes]).bottleneck
    cost = None
    if price_per_worker_hour is not None or price_per_server_hour is not None:
        hourly = (price_per_worker_hour or 0) * network.num_workers + (price_per_server_hour or 0) * servers
        cost = hourly / 3600 / throughput if throughput > 0 else None
    return Prediction(
        workers=network.num_workers,
        servers=servers,
        mode=prepared.mode,
        throughput=throughput,
        step_s=float(np.mean([outcome.step_s for outcome in outcomes])),
        events=sum(outcome.events for outcome in outcomes),
        wall_s=sum(outcome.wall_s for outcome in outcomes),
        architecture=prepared.plan.architecture,
        policy=prepared.plan.policy,
        throughput_low=None if low is None else max(0.0, low),
        throughput_high=high,
        bottleneck=resource,
        bottleneck_utilization=busy,
        lin=lin(totals, network.num_workers) if totals else None,
        cynthia=cynthia(totals, network.num_workers) if totals else None,
        lockstep=prepared.lockstep,
        cost_per_example=cost,
    )
