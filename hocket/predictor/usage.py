"""The use of each kind of resource at a predicted rate, and the one that holds the others up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hocket.network import Topology
from hocket.predictor.lowering import WorkerStep
from hocket.sim.lowering.lowered import Floats


@dataclass(frozen=True)
class Usage:
    """The busy fraction of each kind of resource, by name; of links the busiest one counts.

    ``opposite``: of kinds of links, that of the direction in which the busiest one is not.
    """

    busy: dict[str, float]
    opposite: dict[str, float] = field(default_factory=dict)

    @property
    def bottleneck(self) -> tuple[str, float]:
        """The kind that is busy longest, and for which fraction of the time.

        A step's demand is its mean, not the drawn one: a hair over 1 is 1.
        """
        name = max(self.busy, key=lambda resource: self.busy[resource])
        return name, min(1.0, self.busy[name])

    @property
    def idle_of_workers(self) -> float:
        """The fraction of the time in which workers do not compute."""
        return max(0.0, 1.0 - self.busy["worker processors"])

    @staticmethod
    def mean(usages: Sequence[Usage]) -> Usage:
        """The mean of several runs of one configuration."""
        return Usage(*(_mean([getattr(u, kind) for u in usages]) for kind in ("busy", "opposite")))


def of_servers(
    step: WorkerStep,
    topology: Topology,
    speeds: Sequence[float],
    rates: Floats,
    *,
    startup_s: float,
    synchronous: bool,
) -> Usage:
    """Usage with parameter servers, where worker w completes ``rates[w]`` steps a second, (W,)."""
    demand, num_workers, num_servers = step.demand, len(rates), len(topology.server_bps)
    computing = rates * demand.worker_s / np.asarray(speeds)
    # The slowest worker holds up a synchronous step; asynchronous workers hold up themselves alone.
    busy = {"worker processors": float(computing.max() if synchronous else computing.mean())}
    streams = step.program.lane[step.program.num_timed :]
    busy["transfer startups"] = float(rates.max() * startup_s * np.bincount(streams, minlength=1).max())
    if step.program.global_server.size:
        busy["server processors"] = float(rates.max() * demand.server_s.max())
    else:
        apart, in_turn = rates.mean() * demand.server_s.max(), rates.sum() * demand.turn_s.max()
        busy["server processors"] = float(max(apart, in_turn))
    w, s = np.divmod(np.arange(num_workers * num_servers), num_servers)
    bps = np.concatenate([rates[w] * demand.pull_bits[s], rates[w] * demand.push_bits[s]])
    capacity = topology.capacity_bps()
    load = np.zeros(len(capacity))
    routes = topology.routes()
    for hop in routes.T:
        np.add.at(load, hop[hop >= 0], bps[hop >= 0])
    cuts = np.cumsum([num_servers, num_servers, num_workers, num_workers])
    *ways, racks = (float(part.max()) for part in np.split(load / capacity, cuts))
    downlink, uplink, inwards, outwards = ways
    busy |= {"downlink": downlink, "uplink": uplink, "worker links": max(inwards, outwards)}
    busy["rack uplinks"] = racks
    opposite = {"downlink": uplink, "uplink": downlink, "worker links": min(inwards, outwards)}
    return Usage(busy, opposite)


def _mean(fractions: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in fractions])) for name in fractions[0]}


def of_reductions(rates: Floats, speeds: Sequence[float], worker_s: float, network_s: float) -> Usage:
    """Usage with AllReduce: a step takes ``worker_s`` of each processor and ``network_s`` of the network."""
    rate, slowest_s = float(rates.max()), worker_s / min(speeds)
    return Usage({"worker processors": rate * slowest_s, "network": rate * network_s})
