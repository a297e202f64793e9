"""The network that all-reduces between machines see, racks included."""

from __future__ import annotations

import dataclasses

from hocket.errors import HocketError
from hocket.network import Network, Topology
from hocket.predictor.machines import Machines


def ring_of(network: Network, topology: Topology) -> Network:
    """The network that an all-reduce between all workers sees: the slowest link that it crosses.

    Ranks stand in rack order, so that a ring crosses each rack's uplink once in each direction. The
    measured cost of an all-reduce holds on the links that it was measured on. Nodes bring their own racks.

    Raises
    ------
    HocketError
        For a pattern that is not modelled between racks, and for nodes beside racks or links of their own.
    """
    slowest_bps = min(topology.worker_bps)
    if network.nodes is not None:
        _check_beside_nodes(network, topology, slowest_bps)
        return network
    pattern = network.pattern
    if topology.racks > 1:
        if pattern not in (None, "ring"):
            raise HocketError(f"pattern '{pattern}' between racks is not modelled; use ring or one rack")
        pattern, slowest_bps = "ring", min(slowest_bps, *topology.uplink_bps.tolist())
    as_measured = slowest_bps == network.bandwidth_bps
    return dataclasses.replace(
        network,
        bandwidth_bps=slowest_bps,
        pattern=pattern,
        reduction=network.reduction if as_measured else None,
    )


def seen_by_all_reduce(machines: Machines, network: Network, num_workers: int) -> Network:
    """The network that an all-reduce between so many of ``machines`` sees."""
    return ring_of(machines.network(network, num_workers, 1), machines.topology(network, num_workers, 0))


def _check_beside_nodes(network: Network, topology: Topology, slowest_bps: float) -> None:
    """Refuse machines that differ where nodes say what they are."""
    assert network.nodes is not None
    if topology.racks > 1:
        raise HocketError(
            f"{topology.racks} racks beside {network.nodes.text}; give the nodes a rack instead"
        )
    if slowest_bps != network.bandwidth_bps or len(set(topology.worker_bps)) > 1:
        raise HocketError(f"bandwidths of workers beside {network.nodes.text}; give that of a NIC instead")
