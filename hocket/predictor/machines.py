"""The machines a prediction is for, where they are not all alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hocket.errors import HocketError
from hocket.network import Network, Topology
from hocket.notebook import ObjectSummary, Summarized


@dataclass(frozen=True, repr=False, kw_only=True)
class Machines(Summarized):
    """The machines of a prediction, where they are not equal workers with a network of their own.

    ``speeds``, ``worker_bps`` and ``server_bps`` hold one value for all machines, or at least as many as the
    row with most machines has; rows with fewer take the first ones.

    Parameters
    ----------
    speeds
        The speed at which each worker computes, from 1e-6 to 1e6; 1.0 is the machine that was profiled.
    worker_bps, server_bps
        Bits per second of each interface, from 1 to 1e18; None: the network's bandwidth.
    racks
        The number of racks, from 1 to the number of machines, over which workers and servers are each spread
        evenly, in order.
    oversubscription
        The sum of the bandwidths of a rack's machines, divided by that of the rack's uplink, from 1 to 1e6;
        only of several racks.
    background
        The fraction of every link that others use, from 0 to below 1.
    backup
        Of W workers in synchronous training, a step takes the gradients of the first W - backup.
    spread
        Of W asynchronous workers, number w begins w / W of a step's computing after the first one.

    Raises
    ------
    HocketError
        When a value is out of its range, or one rack is oversubscribed. Numbers that depend on how many
        machines there are, are refused by :func:`hocket.predict`.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> half = hocket.Machines(speeds=(1.0, 0.5))
    >>> rows = hocket.predict(graph, hocket.Network(), workers=2, machines=half, steps=20, skip=5)
    >>> rows[0].workers
    2
    """

    speeds: tuple[float, ...] = (1.0,)
    worker_bps: tuple[float, ...] | None = None
    server_bps: tuple[float, ...] | None = None
    racks: int = 1
    oversubscription: float = 1.0
    background: float = 0.0
    backup: int = 0
    spread: bool = False

    def __post_init__(self) -> None:
        for speed in self.speeds:
            if not 1e-6 <= speed <= 1e6:
                raise HocketError(f"speed {speed} is not between 1e-6 and 1e6; 1 is the machine profiled")
        if not 0 <= self.background < 1:
            raise HocketError(
                f"background {self.background} is not a fraction from 0 to below 1; give e.g. 0.2"
            )
        if self.backup < 0:
            raise HocketError(f"{self.backup} backup workers: give 0 or more")
        if self.racks == 1 and self.oversubscription != 1.0:
            raise HocketError(
                f"oversubscription {self.oversubscription} of one rack, whose uplink nothing crosses; "
                "give more racks, or leave it out"
            )

    def _summary(self) -> ObjectSummary:
        ranges = [
            (label, values)
            for label, values in (
                ("speeds", self.speeds),
                ("workers' bit/s", self.worker_bps),
                ("servers' bit/s", self.server_bps),
            )
            if values
        ]
        lines = [(label, _range(values)) for label, values in ranges]
        lines.append(("racks", f"{self.racks}, oversubscription {self.oversubscription:g}"))
        others = f"background {self.background:.0%}, backup workers {self.backup}"
        lines.append(("others", others + (", workers begin apart" if self.spread else "")))
        return ObjectSummary("Machines", lines)

    def speeds_of(self, num_workers: int) -> tuple[float, ...]:
        """The speed of each of ``num_workers``."""
        return _each(self.speeds, num_workers, "speeds", "workers")

    def network(self, network: Network, num_workers: int, num_servers: int) -> Network:
        """``network`` with that many machines, and what the background leaves of its bandwidth.

        The measured cost of an all-reduce holds without background only.
        """
        return replace(
            network,
            num_workers=num_workers,
            num_servers=num_servers,
            bandwidth_bps=network.bandwidth_bps * (1 - self.background),
            reduction=None if self.background else network.reduction,
        )

    def topology(self, network: Network, num_workers: int, num_servers: int) -> Topology:
        """The links between that many machines, with what the background leaves of each."""
        workers = self.worker_bps or (network.bandwidth_bps,)
        servers = self.server_bps or (network.bandwidth_bps,)
        free = 1 - self.background
        return Topology(
            worker_bps=tuple(
                free * bps for bps in _each(workers, num_workers, "worker bandwidths", "workers")
            ),
            server_bps=tuple(
                free * bps for bps in _each(servers, num_servers, "server bandwidths", "servers")
            ),
            racks=self.racks,
            oversubscription=self.oversubscription,
        )


ALIKE = Machines()


def _range(values: Sequence[float]) -> str:
    """One value, or how many there are and from what to what."""
    if len(values) == 1:
        return f"{values[0]:g}, all alike"
    return f"{len(values)}, from {min(values):g} to {max(values):g}"


def _each(values: Sequence[float], count: int, what: str, machines: str) -> tuple[float, ...]:
    if len(values) == 1:
        return (values[0],) * count
    if len(values) < count:
        raise HocketError(f"{len(values)} {what} for {count} {machines}; give one, or one for each")
    return tuple(values[:count])
