"""The rate that workers and servers will reach: one prepared configuration, run with several seeds.

Source: Li et al., "Throughput Prediction of Asynchronous SGD in TensorFlow" (ICPE 2020), sections 3.4 and 5;
synchronous training, backup workers and AllReduce are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from hocket.confidence import interval_95
from hocket.graph.plan import ARCHITECTURE_NAMES
from hocket.network import choose_pattern
from hocket.notebook import ObjectSummary, Summarized
from hocket.planner import Architecture
from hocket.predictor.prediction_range import RangeSource, computing_error, step_range_s
from hocket.predictor.prediction_request import Mode
from hocket.predictor.prepared import Prepared
from hocket.predictor.published_models import Totals, cynthia, lin
from hocket.predictor.run_outcome import Outcome
from hocket.predictor.usage import Usage
from hocket.text import duration_text, machines_text, rate_range_text, rate_text

_ONE_WAY, _BOTH_WAYS = 0.65, 0.85
"""Of the time: links used less in either direction, and more in both together, wait for their other one."""


class Prediction(Summarized, msgspec.Struct, frozen=True, kw_only=True):
    """One row of a prediction, of one configuration: its throughput, and what limits it.

    The fields are the keys of ``predict --json``.

    Attributes
    ----------
    workers, servers
        Numbers of machines; ``servers`` is 0 with AllReduce.
    mode, architecture, policy
        "sync" or "async", "allreduce" or "ps", and the name of the plan's policy.
    throughput
        Examples a second over all workers.
    throughput_low, throughput_high
        The 95% confidence interval over repeated seeds; None for a single one.
    throughput_least, throughput_most, range_of
        The range of ``throughput`` by how far computing may be off: "derived", by the error that derived
        steps had in cross-validation, or "recorded", 95% by the spread of the profile's steps. None where
        neither is known.
    patterns
        The ways in which all-reduces run, by their bytes: "ring", "tree", and of nodes of several GPUs
        NCCL's algorithm and protocol, such as "tree LL128"; "halves" of those in two halves.
    step_s
        Seconds that a worker takes for a step, the mean.
    bottleneck, bottleneck_utilization
        The resource that is busy longest, and for which fraction of the time it is: "worker processors",
        "server processors", "transfer startups", "downlink" and "uplink" (servers' interfaces, to workers and
        from them), "worker links" or "rack uplinks"; with AllReduce "worker processors" or "network".
    opposite_utilization
        The same of the other direction of servers' or workers' links, where those are the bottleneck; None
        of another one.
    uneven_fraction
        The part of a synchronous step for which its slowest worker computes longer than workers do on
        average, since measured steps differ in length; at most the part in which a worker does not compute.
        None where nothing awaits the slowest one.
    alone_throughput
        Examples a second of the profiled worker alone, without a network and without updates that servers
        run: the most that a worker can reach. None where workers compute nothing.
    speedup, efficiency
        ``throughput`` over ``alone_throughput``, and over what all of the row's workers would reach alone,
        each at its own speed (at most 1, but with sharded updates). None as ``alone_throughput``.
    lin, cynthia
        Examples a second by two models of asynchronous training: Lin et al., "A Model-Based Approach to
        Streamlining Distributed Training for Asynchronous SGD" (MASCOTS 2018), and Zheng et al., "Cynthia"
        (ICPP 2019). None where they say nothing: synchronous, in racks, or with slower links of workers.
    lockstep
        True where nothing could pull asynchronous workers apart, as all measured steps are the same.
    spread
        True where workers were told to begin apart (``Machines.spread``).
    cost_per_example
        In the currency of the prices; None without any.
    alone_cost_per_example
        That of the worker alone of ``alone_throughput``, without servers; None without a price of workers.
    events, wall_s
        Operations and transfers that were simulated, and the seconds that took; of all-reduces whose updates
        wait for all of them, reductions and what workers do between them.
    steps, steady
        The steps of each worker that the longest run simulated, and whether the first and the second half of
        every run's steps (without the skipped ones) take the same time to within 5%; None where one step is
        all that counts.
    interpolated
        The two simulated numbers of workers, fewer and more, between which this row is on a line of the time
        of a step; None where it was simulated itself.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> (row,) = hocket.predict(graph, hocket.Network(), workers=4, steps=20, skip=5)
    >>> row.throughput > 0 and row.efficiency <= 1
    True
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
    throughput_least: float | None = None
    throughput_most: float | None = None
    range_of: RangeSource | None = None
    patterns: tuple[str, ...] = ()
    bottleneck: str
    bottleneck_utilization: float
    opposite_utilization: float | None = None
    uneven_fraction: float | None = None
    lin: float | None = None
    cynthia: float | None = None
    lockstep: bool = False
    spread: bool = False
    cost_per_example: float | None = None
    alone_cost_per_example: float | None = None
    alone_throughput: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    steps: int = 0
    steady: bool | None = None
    interpolated: tuple[int, int] | None = None

    @property
    def machines(self) -> str:
        """The numbers of workers and servers, in words."""
        return machines_text(self.workers, self.servers)

    @property
    def busiest(self) -> str:
        """The bottleneck and its use, of links in both directions where pulls and pushes take turns."""
        said = f"{self.bottleneck} {self.bottleneck_utilization:.0%}"
        if not self.takes_turns:
            return said
        return f"{said}, {self.other_way} {self.opposite_utilization:.0%}"

    @property
    def other_way(self) -> str:
        """The name of the other direction of the bottleneck's links."""
        return {"downlink": "uplink", "uplink": "downlink"}.get(self.bottleneck, "the other way")

    @property
    def range_text(self) -> str | None:
        """The range beside the throughput in words, ``1.9 to 2.8 M``; None where it is not known."""
        if self.throughput_least is None or self.throughput_most is None:
            return None
        return rate_range_text(self.throughput_least, self.throughput_most, self.throughput)

    @property
    def takes_turns(self) -> bool:
        """True if links that are the bottleneck are about as busy in both directions, half the time each.

        A worker pulls, computes and pushes in turn; more of them may do so together.
        """
        both = self.bottleneck_utilization + (self.opposite_utilization or 0.0)
        return self.bottleneck_utilization < _ONE_WAY and both > _BOTH_WAYS

    def _summary(self) -> ObjectSummary:
        rate = rate_text(self.throughput)
        if self.throughput_low is not None and self.throughput_high is not None:
            rate += f", 95% from {rate_text(self.throughput_low)} to {rate_text(self.throughput_high)}"
        if (within := self.range_text) is not None:
            rate += f" ({within})"
        lines = [("throughput", rate), ("step", duration_text(self.step_s))]
        if self.speedup is not None and self.efficiency is not None:
            lines.append(
                ("speed-up", f"{self.speedup:.2f}x one worker alone, efficiency {self.efficiency:.0%}")
            )
        lines.append(("busiest", f"{self.bottleneck}, {self.bottleneck_utilization:.0%} of the time"))
        how = f"{self.mode}, {ARCHITECTURE_NAMES[self.architecture]}, '{self.policy}'"
        return ObjectSummary(f"Prediction for {self.machines}: {how}", lines)


def totals_of(prepared: Prepared) -> Totals | None:
    """Totals of a prepared step for coarse models of asynchronous training; None where those say nothing.

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
    usage = Usage.mean([outcome.usage for outcome in outcomes])
    resource, busy = usage.bottleneck
    cost = None
    if price_per_worker_hour is not None or price_per_server_hour is not None:
        hourly = (price_per_worker_hour or 0) * network.num_workers + (price_per_server_hour or 0) * servers
        cost = hourly / 3600 / throughput
    alone, most = prepared.alone_throughput, sum(prepared.speeds)
    efficiency = None if alone is None else throughput / alone / most
    if efficiency is not None and prepared.plan.architecture != "fsdp":  # whose workers share updates out
        efficiency = min(1.0, efficiency)
    step_s, uneven = float(np.mean([outcome.step_s for outcome in outcomes])), prepared.uneven_s
    halves = [outcome.steady for outcome in outcomes]
    least, most_throughput, range_of = _range(prepared, throughput, step_s, usage)
    return Prediction(
        workers=network.num_workers,
        servers=servers,
        mode=prepared.mode,
        throughput=throughput,
        step_s=step_s,
        events=sum(outcome.events for outcome in outcomes),
        wall_s=sum(outcome.wall_s for outcome in outcomes),
        architecture=prepared.plan.architecture,
        policy=prepared.plan.policy,
        throughput_low=None if low is None else max(0.0, low),
        throughput_high=high,
        throughput_least=least,
        throughput_most=most_throughput,
        range_of=range_of,
        patterns=_patterns(prepared),
        bottleneck=resource,
        bottleneck_utilization=busy,
        opposite_utilization=usage.opposite.get(resource),
        # Steps that overlap absorb a part: no worker waits while it computes.
        uneven_fraction=None if uneven is None else min(usage.idle_of_workers, uneven / step_s),
        lin=lin(totals, network.num_workers) if totals else None,
        cynthia=cynthia(totals, network.num_workers) if totals else None,
        lockstep=prepared.lockstep,
        spread=prepared.request.machines.spread,
        cost_per_example=cost,
        alone_throughput=alone,
        alone_cost_per_example=price_per_worker_hour / 3600 / alone
        if alone and price_per_worker_hour is not None
        else None,
        speedup=None if efficiency is None else efficiency * most,
        efficiency=efficiency,
        steps=max(outcome.steps for outcome in outcomes),
        steady=None if None in halves else all(halves),
        interpolated=outcomes[0].between,
    )


def _range(
    prepared: Prepared, throughput: float, step_s: float, usage: Usage
) -> tuple[float, float, RangeSource] | tuple[None, None, None]:
    """The least and the most throughput by the error of computing, and its source."""
    error = computing_error(prepared.request.graph)
    if error is None:
        return None, None, None
    moving = max(share for resource, share in usage.busy.items() if "processors" not in resource)
    within = step_range_s(step_s, error.seconds / min(prepared.speeds), moving * step_s)
    if within is None:
        return None, None, None
    return throughput * step_s / within[1], throughput * step_s / within[0], error.source


def _patterns(prepared: Prepared) -> tuple[str, ...]:
    """The ways in which the plan's all-reduces run, those of most bytes first."""
    if prepared.plan.architecture != "allreduce" or prepared.network.num_workers == 1:
        return ()
    graph = prepared.request.graph
    sizes = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    sums: dict[str, float] = {}
    for batch in prepared.plan.reductions:
        size = float(sum(sizes[name] for name in batch.parameters))
        way = "halves" if batch.halves else choose_pattern(prepared.network, size, batch.chunks)
        sums[way] = sums.get(way, 0.0) + size
    return tuple(sorted(sums, key=lambda way: -sums[way]))
