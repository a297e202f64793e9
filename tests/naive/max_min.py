"""Naive twin of max-min sharing: water rises in every transfer at once until a link on its way is full."""

from __future__ import annotations

from collections.abc import Iterable

from hocket.network.topology import Topology

Link = tuple[str, int]
Flow = tuple[str, int, int]  # "pull" or "push", worker, server


def capacities(topology: Topology) -> dict[Link, float]:
    full: dict[Link, float] = {}
    racks = [0.0] * topology.racks
    for kind, machines in (("worker", topology.worker_bps), ("server", topology.server_bps)):
        for i, bps in enumerate(machines):
            full[f"{kind} in", i] = full[f"{kind} out", i] = bps
            racks[rack_of(i, len(machines), topology)] += bps
    for rack, bps in enumerate(racks):
        full["rack in", rack] = full["rack out", rack] = bps / topology.oversubscription
    return full


def rack_of(machine: int, machines: int, topology: Topology) -> int:
    return machine * topology.racks // machines


def path(topology: Topology, flow: Flow) -> list[Link]:
    direction, worker, server = flow
    ends = {"worker": worker, "server": server}
    racks = {
        "worker": rack_of(worker, len(topology.worker_bps), topology),
        "server": rack_of(server, len(topology.server_bps), topology),
    }
    source, target = ("server", "worker") if direction == "pull" else ("worker", "server")
    links: list[Link] = [(f"{source} out", ends[source]), (f"{target} in", ends[target])]
    if racks[source] != racks[target]:
        links += [("rack out", racks[source]), ("rack in", racks[target])]
    return links


def rates(topology: Topology, flows: Iterable[Flow]) -> dict[Flow, float]:
    """What each of ``flows`` gets, in bit/s, while they all send."""
    full = capacities(topology)
    paths = {flow: path(topology, flow) for flow in flows}
    rate = dict.fromkeys(paths, 0.0)
    rising = set(paths)
    while rising:
        left = {link: full[link] - sum(rate[f] for f in paths if link in paths[f]) for link in full}
        users = {link: sum(link in paths[f] for f in rising) for link in full}
        rise = min(left[link] / users[link] for link in full if users[link])
        for flow in rising:
            rate[flow] += rise
        stopped = {
            link for link in full if users[link] and left[link] - rise * users[link] <= 1e-9 * full[link]
        }
        rising = {flow for flow in rising if not stopped & set(paths[flow])}
    return rate
