"""Links that a transfer between a worker and a server crosses, and the rate of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.errors import HocketError
from hocket.network.link import Network
from hocket.network.ranges import check_bandwidth
from hocket.text import counted

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NO_LINK = -1  # pads routes that cross fewer links than others


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Full-duplex interfaces of workers and servers, in racks whose uplinks may be oversubscribed.

    Attributes
    ----------
    worker_bps, server_bps : bits per second of each interface, in each direction; one entry a machine.
    racks : machines stand in that many racks, workers and servers each split evenly in order. Inside a rack
        only interfaces count; between racks a transfer leaves through one uplink and enters through another.
    oversubscription : an uplink carries the sum of its rack's interfaces divided by this, in each direction.
    """

    worker_bps: tuple[float, ...]
    server_bps: tuple[float, ...]
    racks: int = 1
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        for value in (*self.worker_bps, *self.server_bps):
            check_bandwidth(value)
        machines = len(self.worker_bps) + len(self.server_bps)
        if isinstance(self.racks, bool) or not isinstance(self.racks, int) or not 1 <= self.racks <= machines:
            raise HocketError(
                f"{self.racks!r} racks for {counted(machines, 'machine')}: a rack holds at least one; "
                "give fewer racks or more machines"
            )
        if not 1.0 <= self.oversubscription <= 1e6:
            raise HocketError(
                f"oversubscription {self.oversubscription} is not between 1 (none) and 1e6; give e.g. 4"
            )

    @staticmethod
    def flat(network: Network) -> Topology:
        """The switch of ``network``: every interface alike, no racks."""
        bps = network.bandwidth_bps
        return Topology(worker_bps=(bps,) * network.num_workers, server_bps=(bps,) * network.num_servers)

    @property
    def worker_rack(self) -> Ints:
        """The rack of each worker, (W,)."""
        return _spread(len(self.worker_bps), self.racks)

    @property
    def server_rack(self) -> Ints:
        """The rack of each server, (M,)."""
        return _spread(len(self.server_bps), self.racks)

    @property
    def uplink_bps(self) -> Floats:
        """Each rack's way out, and its way in, (racks,)."""
        weights = np.array(self.worker_bps + self.server_bps)
        rack = np.concatenate([self.worker_rack, self.server_rack])
        return np.bincount(rack, weights=weights, minlength=self.racks) / self.oversubscription

    @property
    def all_alike(self) -> bool:
        """True if workers differ in nothing that a transfer to a single server notices."""
        return len(self.server_bps) == 1 and self.racks == 1 and len(set(self.worker_bps)) == 1

    def capacity_bps(self) -> Floats:
        """Of every directed link, (2 M + 2 W + 2 racks,).

        Servers out, servers in, workers in, workers out, racks out, racks in.
        """
        servers, workers, racks = np.array(self.server_bps), np.array(self.worker_bps), self.uplink_bps
        return np.concatenate([servers, servers, workers, workers, racks, racks])

    def routes(self) -> Ints:
        """The links of every worker-server pair, (2 W M, 4): pull w M + s, then pushes in the same order."""
        num_workers, num_servers = len(self.worker_bps), len(self.server_bps)
        w, s = np.divmod(np.arange(num_workers * num_servers), num_servers)
        rack_out = 2 * num_servers + 2 * num_workers
        rack_in = rack_out + self.racks
        of_worker, of_server = self.worker_rack[w], self.server_rack[s]
        leaves = of_worker != of_server
        pulls = (
            s,
            np.where(leaves, rack_out + of_server, NO_LINK),
            np.where(leaves, rack_in + of_worker, NO_LINK),
            2 * num_servers + w,
        )
        pushes = (
            2 * num_servers + num_workers + w,
            np.where(leaves, rack_out + of_worker, NO_LINK),
            np.where(leaves, rack_in + of_server, NO_LINK),
            num_servers + s,
        )
        return np.concatenate([np.stack(pulls, axis=1), np.stack(pushes, axis=1)])


def _spread(machines: int, racks: int) -> Ints:
    """Machines in order, split evenly over racks."""
    return np.arange(machines) * racks // max(1, machines)
