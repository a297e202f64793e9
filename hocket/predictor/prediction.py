"""What a number of workers and servers will reach: one prepared configuration, run with several seeds.

Source: throughput-prediction paper, sections 3.4 and 5; synchronous training, backup workers and AllReduce
are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from hocket.intervals import interval_95
from hocket.planner import Architecture
from hocket.predictor.baselines import Totals, cynthia, lin
from hocket.predictor.outcome import Outcome
from hocket.predictor.prepared import Prepared
from hocket.predictor.request import Mode
from hocket.predictor.usage import Usage


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration: the keys of ``predict --json``.

    ``throughput``: examples a second over all workers; ``step_s``: seconds a worker takes for a step, the
    mean; ``events`` and ``wall_s``: operations and transfers simulated, and how long that took.
    ``throughput_low`` and ``throughput_high``: the 95% confidence interval over repeated seeds, None for a
    single one. ``bottleneck``: the resource that is busy longest, and its ``bottleneck_utilization``. ``lin``
    and ``cynthia``: what those models of asynchronous training say, examples a second. ``lockstep``: workers
    never drift apart, for want of sampled durations. ``cost_per_example``: in the currency of the prices, if
    there are any.

    ``alone_throughput``: of one worker like the profiled one by itself, without a network, and where servers
    run the updates without those: nothing a worker does is faster. ``speedup``: the throughput over that;
    ``efficiency``: over what all of the row's workers could reach so, each at its own speed. No more than 1,
    which a hair more is that chance drew. All three are None for a step whose workers compute nothing.
    ``steps``: how many of each worker were simulated in the longest run; ``steady``: whether the two halves
    of every run agree to within 5%, None where one step is all that counts.
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
    alone_throughput: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    steps: int = 0
    steady: bool | None = None


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
        cost = hourly / 3600 / throughput
    alone, most = prepared.alone_throughput, sum(prepared.speeds)
    efficiency = None if alone is None else min(1.0, throughput / alone / most)
    halves = [outcome.steady for outcome in outcomes]
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
        alone_throughput=alone,
        speedup=None if efficiency is None else efficiency * most,
        efficiency=efficiency,
        steps=max(outcome.steps for outcome in outcomes),
        steady=None if None in halves else all(halves),
    )
