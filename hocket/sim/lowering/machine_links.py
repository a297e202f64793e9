"""Machines of a lowered step: their speeds and the links between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hocket.errors import HocketError
from hocket.network.topology import Topology
from hocket.sim.loop.channels import alike_links
from hocket.sim.loop.step_program import ChannelLinks
from hocket.sim.lowering.lowered import Lowered


def check_machines(lowered: Lowered, speeds: Sequence[float] | None, topology: Topology | None) -> None:
    """Refuse speeds (W,) and a topology that are not those of as many machines; raises HocketError."""
    network = lowered.network
    if speeds is not None:
        if len(speeds) != network.num_workers:
            raise HocketError(f"{len(speeds)} speeds for {network.num_workers} workers; give one for each")
        for speed in speeds:
            if not (math.isfinite(speed) and speed > 0):
                raise HocketError(f"speed {speed} is not positive; give e.g. 0.5 for a worker half as fast")
    if topology is not None and lowered.program.num_servers:
        machines = len(topology.worker_bps), len(topology.server_bps)
        if machines != (network.num_workers, network.num_servers):
            raise HocketError(
                f"a topology of {machines[0]} workers and {machines[1]} servers for "
                f"{network.num_workers} and {network.num_servers}; give one interface for each"
            )


def channel_links(lowered: Lowered, topology: Topology | None) -> ChannelLinks:
    """The channels' links as the kernel takes them."""
    flat = Topology.flat(lowered.network)
    if topology is None or lowered.program.num_servers == 0:
        topology = flat
    # A single worker on a flat network has no one to leave its share to.
    if topology.all_alike or (topology == flat and lowered.network.num_workers == 1):
        route, capacity_bps = alike_links(topology.server_bps[0], topology.worker_bps[0])
    else:
        route, capacity_bps = topology.routes(), topology.capacity_bps()
    network = lowered.network
    return ChannelLinks(route, capacity_bps, float(network.startup_s), network.window_bits, 1)
