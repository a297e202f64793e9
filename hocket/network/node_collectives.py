"""The cost of an AllReduce between nodes of several GPUs, as NCCL runs it (its ``src/graph/tuning.cc``).

n workers fill k nodes of g GPUs. B is what one GPU sends inside of its node, O what leads out of a node (all
of its NICs, or its part of the rack's uplink, of the node or rack that has the least). d bytes take

    ring        l + 2 (n-1) hops, 2k of them between nodes     2 (n-1)/n d at the slower of .8 B and O
    tree        l + 2 (g-1) hops inside, 2 log2(k) between     2 (g-1)/g d at .9 of .8 B, and 2 d at .9 O
    in-switch   l + 2 hops inside, 2 log2(k) between           d at .61 B, and 2 d at .9 O

* A ring passes through all GPUs of a node before it leaves it. NCCL runs one for each NIC, with its share of
  the bytes, so that a node's way out is the sum of its NICs. Chunks follow each other over all links, and the
  slowest link decides: hops count once, bytes once. The longest way of a chunk is 2 (n-1) links in a row; all
  2k that lead out are among them where a node has three GPUs or more.
* A tree is a chain inside of each node and two binary trees over nodes, each with half of the bytes: every
  node sends and receives 2 d, of two nodes each d (one is the root of one tree, the other of the other).
* ``in-switch`` is NVLink SHARP: switches inside of a node sum up, trees go between nodes.

Each runs by one of three protocols, and what takes least for a size is taken, as NCCL takes it: LL (every 8
bytes carry a flag, so nothing is waited for), LL128 (120 of 128 bytes; over NVLink) and Simple (all bytes;
each hop waits for memory). Bytes of a pipeline's first chunk, and what NCCL corrects by hand for trees of
middle sizes, are left out.

Between racks rings alone are modelled: nodes stand in rack order, so that a ring crosses each uplink once.
Nodes of one GPU are the flat network, with all NICs for one interface.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from hocket.errors import HocketError
from hocket.network.gpu_nodes import Nodes
from hocket.network.link import Network
from hocket.network.reduction_cost import CollectiveCost

Algorithm = Literal["ring", "tree", "in-switch"]
NodeWay = Literal[
    "ring LL",
    "ring LL128",
    "ring Simple",
    "tree LL",
    "tree LL128",
    "tree Simple",
    "in-switch LL",
    "in-switch LL128",
    "in-switch Simple",
]
NODE_WAYS: tuple[NodeWay, ...] = get_args(NodeWay)

INSIDE = 0.8
"""Of a GPU's links inside of a node, what rings reach: NCCL reckons with 20 of an NVLink's 25 GB/s, 20.6 on
an H100, and 12 of a PCIe 3.0 slot's 16 GB/s (``src/graph/topo.h``); an H100's 450 GB/s give 370 in its
developers' words (nccl-tests, issue 212)."""
TREE = 0.9
"""Of a ring's rate, what trees reach (tuning.cc)."""
IN_SWITCH = 275 / 450
"""Bytes summed up a second, of a GPU's links: 275 of an H100's 450 GB/s between eight (nccl-tests, 212)."""
LAUNCH_S = 6.6e-6
"""Before anything moves: NCCL's base latency of a ring by LL."""
NVLINK_BPS = 8 * 64e9
"""The rate of a PCIe 5.0 slot; faster links are NVLink, over which LL128 runs."""


class Protocol(NamedTuple):
    """A protocol of NCCL's: what of the wire it reaches, and what each hop waits for besides its startup.

    ``reached``: tuning.cc has a quarter for LL (half of the bytes are flags, and threads are fewer), 120 of
    128 bytes for LL128. ``inside_s``, ``between_s``: its latencies of a ring's hop over NVLink (0.6, 1.9 and
    3.4 us) and over a network (2.7, 4.0 and 9.6 us), less LL's.
    """

    reached: float
    inside_s: float
    between_s: float


PROTOCOLS = {
    "LL": Protocol(0.25, 0.0, 0.0),
    "LL128": Protocol(120 / 128, 1.3e-6, 1.3e-6),
    "Simple": Protocol(1.0, 2.8e-6, 6.9e-6),
}


class _Hops(NamedTuple):
    """An algorithm's way between workers: hops inside of nodes and between them.

    ``inside``, ``between``: how many follow each other. ``inside_s``, ``between_s``: seconds in which a byte
    of the batch passes at full wire. ``reduced``: how often a worker adds each byte up.
    """

    inside: int
    between: int
    inside_s: float
    between_s: float
    reduced: float


@lru_cache(maxsize=256)
def flattened(network: Network) -> Network:
    """The flat network that nodes of one GPU are; any other network as it is."""
    nodes = network.nodes
    if nodes is None or nodes.gpus > 1:
        return network
    racks = nodes.racks(network.num_workers) > 1
    return dataclasses.replace(
        network,
        nodes=None,
        bandwidth_bps=nodes.out_bps(network.bandwidth_bps, network.num_workers),
        pattern="ring" if racks else network.pattern,
    )


def node_ways(network: Network, nodes: Nodes) -> tuple[NodeWay, ...]:
    """The ways that NCCL has between ``nodes``, or those of the pattern that is asked for."""
    allowed = ["ring"]
    if nodes.racks(network.num_workers) == 1:
        allowed = ["ring", "tree", "in-switch"] if nodes.in_switch else ["ring", "tree"]
    if network.pattern is not None:
        if network.pattern not in allowed:
            raise HocketError(f"pattern '{network.pattern}' between racks is not modelled; use ring")
        allowed = [network.pattern]
    nvlink = nodes.intra_bps is not None and nodes.intra_bps > NVLINK_BPS
    return tuple(way for way in NODE_WAYS if _algorithm(way) in allowed and (nvlink or "LL128" not in way))


def ring_ways(ways: tuple[NodeWay, ...]) -> tuple[NodeWay, ...]:
    """Those of ``ways`` that are halved into a reduce-scatter and an all-gather; where none is, all rings."""
    return tuple(way for way in ways if _algorithm(way) == "ring") or ("ring LL", "ring Simple")


@lru_cache(maxsize=4096)
def node_cost(way: NodeWay, network: Network) -> CollectiveCost:
    """The cost of ``way`` between the workers of ``network``, which has nodes."""
    nodes = network.nodes
    assert nodes is not None, "a network of nodes"
    assert nodes.intra_bps is not None, "of several GPUs each"
    if network.num_workers == 1:
        return CollectiveCost(latency_s=0.0, handling_s=0.0, wire_s_per_byte=0.0, reduce_s_per_byte=0.0)
    protocol = PROTOCOLS[way.split(" ")[1]]
    hops = _hops(_algorithm(way), network, nodes, nodes.intra_bps)
    waits_s = hops.inside * (nodes.intra_startup_s + protocol.inside_s)
    waits_s += hops.between * (network.startup_s + protocol.between_s)
    return CollectiveCost(
        latency_s=LAUNCH_S + waits_s,
        handling_s=(hops.inside + hops.between) * network.parse_s,
        wire_s_per_byte=max(hops.inside_s, hops.between_s) / protocol.reached,
        reduce_s_per_byte=hops.reduced * network.parse_s_per_byte,
    )


def node_half(way: NodeWay, network: Network) -> CollectiveCost:
    """The cost of a reduce-scatter, the first half of a ring: half of its hops and bytes, and a launch."""
    whole = node_cost(way, network)
    launch_s = LAUNCH_S if network.num_workers > 1 else 0.0
    return CollectiveCost(
        latency_s=launch_s + (whole.latency_s - launch_s) / 2,
        handling_s=whole.handling_s / 2,
        wire_s_per_byte=whole.wire_s_per_byte / 2,
        reduce_s_per_byte=whole.reduce_s_per_byte,
    )


def _algorithm(way: NodeWay) -> Algorithm:
    return way.split(" ")[0]  # type: ignore[return-value]


def _hops(algorithm: Algorithm, network: Network, nodes: Nodes, intra_bps: float) -> _Hops:
    n = network.num_workers
    k, most = nodes.count(n), min(n, nodes.gpus)
    out_s = 8 / nodes.out_bps(network.bandwidth_bps, n) if k > 1 else 0.0
    if algorithm == "ring":
        # Of all links twice around, a chunk leaves out two in a row: those two that are the fastest.
        between = 2 * k - max(0, 3 - most) if k > 1 else 0
        sent = 2 * (n - 1) / n
        return _Hops(
            2 * (n - 1) - between, between, sent * 8 / (INSIDE * intra_bps), sent * out_s, (n - 1) / n
        )
    levels, crossing = (k - 1).bit_length(), min(2, k - 1) * out_s / TREE
    if algorithm == "in-switch":
        return _Hops(2, 2 * levels, 8 / (IN_SWITCH * intra_bps), crossing, float(k > 1))
    chained = 2 * (most - 1) / most * 8 / (TREE * INSIDE * intra_bps)
    return _Hops(2 * (most - 1), 2 * levels, chained, crossing, 1.0 + (k > 1))
