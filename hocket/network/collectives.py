"""The cost of an AllReduce by pattern (Wang et al. 2020, Table I), whole or cut into chunks.

For N workers and d bytes, with alpha = startup + parse cost of a message, beta = seconds per byte of an
interface and gamma = seconds to reduce a byte (``parse_s_per_byte``):

    ring              2 (N-1) alpha      + (2 (N-1)/N beta + (N-1)/N gamma) d
    halving-doubling  2 log2(N) alpha    + (2 (N-1)/N beta + (N-1)/N gamma) d
    tree              2 log2(N) alpha    + log2(N) (2 beta + gamma) d
    shuffle           2 startup + 2 (N-1) parse + (2 (N-1)/N beta + (N-1)/N gamma) d

Differs from the paper
----------------------
* Shuffle (direct reduce-scatter and all-gather, Caramel section 2) is not in Table I: its N-1 messages of a
  round start together, but each receiver handles them one after the other.
* Where N is no power of two, a tree has ceil(log2 N) levels; halving-doubling first folds the workers past
  the last power of two into partners and unfolds them at the end: 2 rounds and (2 beta + gamma) d more.
* The chunks of a reduction start together; their bytes follow each other on the wire, and one chunk is
  reduced while the next is sent (Caramel section 4.4). One chunk is Table I.

By default
----------
Libraries do not choose among the four: gloo reduces in a ring, and NCCL in a ring, or in a tree where
messages are so small that startups decide. Its trees are two, binary, each with half of the bytes; Table I's
is the more cautious figure of a single one. Unless a pattern is asked for, the lesser of these two holds.
Halving-doubling is MPI's, shuffle Caramel's; ``cheapest``, as Caramel chooses, needs a library that has all.

Measured
--------
Where the network brings a measured AllReduce, f(d) = a + b d of Caramel section 4.2, and no pattern is asked
for, that is what one costs. Between another number of workers than the measured N0 it is scaled as a ring
scales: a by (N-1)/(N0-1), its rounds; b by (N-1)/N / ((N0-1)/N0), its bytes. The measurement does not say
what of b is sending and what reducing, so chunks neither cost nor gain anything.

Halves
------
A ring, halving-doubling and shuffle are a reduce-scatter and then an all-gather: half of the rounds and of
the bytes each, and all of the reducing in the first. A tree is not, and where it is asked for halves go in a
ring. A measured AllReduce is halved as it is, unless all-gathers and reduce-scatters were timed as well: then
they cost what they took, scaled as it is to other numbers of workers. (gloo's own reduce-scatter is a whole
all-reduce; all-to-all and a local sum take half of one. Over TCP a long all-gather can take far more than
half of an all-reduce, whose pieces keep fewer bytes on the way.)

Nodes
-----
Where several GPUs share a node, :mod:`hocket.network.node_collectives` has the cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeGuard

from hocket.errors import HocketError
from hocket.network.link import PATTERNS, Network, Pattern
from hocket.network.measured_reduction import MeasuredLine, MeasuredReduction
from hocket.network.node_collectives import (
    NODE_WAYS,
    NodeWay,
    flattened,
    node_cost,
    node_half,
    node_ways,
    ring_ways,
)
from hocket.network.reduction_cost import CollectiveCost

Way = Pattern | Literal["measured"] | NodeWay
_BY_DEFAULT: tuple[Pattern, ...] = ("ring", "tree")


def patterns_of(network: Network) -> tuple[Way, ...]:
    """The ways to choose from: the network's own pattern, else what was measured, else what NCCL has."""
    network = flattened(network)
    if network.nodes is not None:
        return node_ways(network, network.nodes)
    if network.pattern == "cheapest":
        return PATTERNS
    if network.pattern is not None:
        return (network.pattern,)
    return _BY_DEFAULT if network.reduction is None else ("measured",)


def collective_cost(pattern: Way, network: Network) -> CollectiveCost:
    """The cost of ``pattern`` between the workers of ``network``; nothing for a single worker."""
    network = flattened(network)
    if _is_of_nodes(pattern):
        return node_cost(pattern, network)
    n = network.num_workers
    if pattern == "measured":
        if network.reduction is None:
            raise HocketError("no all-reduce was measured on this network; choose a pattern")
        return _measured_cost(network.reduction, network.reduction.workers, n)
    levels = (n - 1).bit_length()
    halvings = n.bit_length() - 1
    folds = n != 1 << halvings
    rounds = {
        "ring": 2 * (n - 1),
        "halving-doubling": 2 * halvings + 2 * folds,
        "tree": 2 * levels,
        "shuffle": min(2, 2 * (n - 1)),
    }[pattern]
    messages = 2 * (n - 1) if pattern == "shuffle" else rounds
    if pattern == "tree":
        sent, reduced = 2.0 * levels, float(levels)
    elif pattern == "halving-doubling":
        core = 1 << halvings
        sent, reduced = 2 * (core - 1) / core + 2 * folds, (core - 1) / core + folds
    else:
        sent, reduced = 2 * (n - 1) / n, (n - 1) / n
    return CollectiveCost(
        latency_s=rounds * network.startup_s,
        handling_s=messages * network.parse_s,
        wire_s_per_byte=sent * 8 / network.bandwidth_bps,
        reduce_s_per_byte=reduced * network.parse_s_per_byte,
    )


def _measured_cost(
    measured: MeasuredReduction | MeasuredLine, workers: int, num_workers: int
) -> CollectiveCost:
    """a + b d of ``workers``, scaled by the ring's law; a chunk adds no startup: all start together."""
    rounds = (num_workers - 1) / (workers - 1)
    sent = rounds * workers / num_workers
    return CollectiveCost(
        latency_s=rounds * measured.a_s,
        handling_s=0.0,
        wire_s_per_byte=sent * measured.b_s_per_byte,
        reduce_s_per_byte=0.0,
    )


def half_costs(network: Network) -> list[tuple[CollectiveCost, CollectiveCost]]:
    """Each way to cut a reduction into a reduce-scatter and an all-gather: the cost of either."""
    network = flattened(network)
    if network.nodes is not None:
        halves = [node_half(way, network) for way in ring_ways(node_ways(network, network.nodes))]
    else:
        halves = [_half(way, network) for way in patterns_of(network) if way != "tree"]
        halves = halves or [_half("ring", network)]
    return [(half, replace(half, reduce_s_per_byte=0.0)) for half in halves]


def _half(way: Way, network: Network) -> CollectiveCost:
    """The cost of a reduce-scatter: half of the rounds and bytes, and all of the reducing."""
    whole = collective_cost(way, network)
    return CollectiveCost(
        latency_s=whole.latency_s / 2,
        handling_s=whole.handling_s / 2,
        wire_s_per_byte=whole.wire_s_per_byte / 2,
        reduce_s_per_byte=whole.reduce_s_per_byte,
    )


def _is_of_nodes(way: Way) -> TypeGuard[NodeWay]:
    return way in NODE_WAYS


def halves_s(network: Network, size_bytes: float, chunks: int = 1) -> tuple[float, float]:
    """Seconds of a reduction's two halves, in the way in which both together are the shortest."""
    ways = [tuple(half.seconds(size_bytes, chunks) for half in way) for way in half_costs(network)]
    scatter_s, gather_s = min(ways, key=sum)
    return scatter_s, gather_s


def gather_s(network: Network, size_bytes: float) -> float:
    """Seconds of an all-gather of ``size_bytes`` between all workers: as measured, or in its fastest way."""
    if (measured := measured_half(network, "gather")) is not None:
        return measured.seconds(size_bytes)
    return min(gather.seconds(size_bytes) for _, gather in half_costs(network))


def scatter_s(network: Network, size_bytes: float, by: Literal["scatter", "exchange"] = "scatter") -> float:
    """Seconds of a reduce-scatter of ``size_bytes`` between all workers: as measured, or in its fastest way.

    ``by``: the library's own, or an exchange of shares that workers add up themselves.
    """
    if (measured := measured_half(network, by)) is not None:
        return measured.seconds(size_bytes)
    return min(scatter.seconds(size_bytes) for scatter, _ in half_costs(network))


def measured_half(network: Network, name: Literal["gather", "scatter", "exchange"]) -> CollectiveCost | None:
    """The cost of such a collective as it was timed; None where it was not, or a pattern is asked for."""
    reduction = network.reduction
    if reduction is None or reduction.halves is None or patterns_of(network) != ("measured",):
        return None
    line: MeasuredLine | None = getattr(reduction.halves, name)
    return None if line is None else _measured_cost(line, reduction.workers, network.num_workers)


def number_s(network: Network) -> float:
    """Seconds of an AllReduce of one number, as a norm is: a message there and one back."""
    if network.num_workers == 1:
        return 0.0
    network = flattened(network)
    if network.nodes is not None:
        return reduction_s(network, 8.0)
    if patterns_of(network) == ("measured",) and network.reduction is not None:
        return network.reduction.a_s / (network.reduction.workers - 1)
    return 2 * (network.startup_s + network.parse_s)


def choose_pattern(network: Network, size_bytes: float, chunks: int = 1) -> Way:
    """The cheapest for that size of the ways that the network leaves to choose from."""
    patterns = patterns_of(network)
    return min(patterns, key=lambda pattern: collective_cost(pattern, network).seconds(size_bytes, chunks))


def reduction_s(network: Network, size_bytes: float, chunks: int = 1) -> float:
    """Seconds of one AllReduce of ``size_bytes`` in ``chunks``, under :func:`choose_pattern`'s pattern."""
    pattern = choose_pattern(network, size_bytes, chunks)
    return collective_cost(pattern, network).seconds(size_bytes, chunks)
