"""Units as users of FSDP2 have them, and as the papers' oracles order them: one a block, gathered ahead."""

from __future__ import annotations

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.network import Network, ShardGroups, fair_share_bps
from hocket.planner.sharded.pieces import Pieces, UnitChoice, plan_of_choice

_MOST_AHEAD = 8


def a_unit_a_block(pieces: Pieces) -> tuple[int, ...]:
    """The cuts that make every block a unit."""
    return tuple(range(1, len(pieces.blocks)))


def fsdp(graph: StepGraph, network: Network) -> Plan:
    """FSDP2's default: a unit a block, and the root's of the rest, kept; gathered ahead as torch does."""
    del network
    pieces = Pieces.of(graph)
    return plan_of_choice(graph, pieces, UnitChoice(cuts=a_unit_a_block(pieces)), "fsdp")


def zero2(graph: StepGraph, network: Network) -> Plan:
    """FSDP2 without resharding: what ZeRO-2 is, whose workers share out gradients and optimizer, and more.

    Parameters are gathered once a step, in the forward pass; gradients are scattered. At the update a worker
    holds its shards alone, where ZeRO-2 holds all parameters and gathers them behind it.
    """
    del network
    pieces = Pieces.of(graph)
    cuts = a_unit_a_block(pieces)
    choice = UnitChoice(cuts=cuts, kept=frozenset(range(len(cuts) + 1)))
    return plan_of_choice(graph, pieces, choice, "fsdp-zero2")


def fsdp_tic(graph: StepGraph, network: Network) -> Plan:
    """A unit a block in TIC's order, each gathered one unit ahead in both passes: the graph alone decides."""
    from hocket.planner.tic import tic_ranks

    del network
    return _by_order(graph, tic_ranks(graph), ahead=1, policy="fsdp-tic")


def fsdp_tac(graph: StepGraph, network: Network) -> Plan:
    """A unit a block in TAC's order, as far ahead as computing has to go on to hide the longest gather."""
    from hocket.planner.tac import tac_order

    transfer_s = network.startup_s + graph.parameter_bytes * 8 / fair_share_bps(network)
    order = tac_order(graph, transfer_s)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    groups, pieces = ShardGroups.of(network), Pieces.of(graph)
    bytes_of = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    longest_s = max(
        (groups.gather_s(sum(bytes_of[name] for name in block)) for block in pieces.blocks), default=0.0
    )
    forward_s = float(graph.oracle_s[graph.phases == 0].sum()) / max(1, len(pieces.blocks))
    needed = int(np.ceil(longest_s / forward_s)) if forward_s > 0 else 1
    return _by_order(graph, ranks, ahead=min(max(needed, 1), _MOST_AHEAD), policy="fsdp-tac")


def _by_order(graph: StepGraph, ranks: np.ndarray, ahead: int, policy: str) -> Plan:
    """A unit a block, gathered by the least rank of each; only what runs later is gathered ahead."""
    pieces = Pieces.of(graph)
    choice = UnitChoice(cuts=a_unit_a_block(pieces), forward=ahead, backward=ahead)
    made = plan_of_choice(graph, pieces, choice, policy)
    rank = dict(zip(graph.parameter_names, ranks.tolist(), strict=True))
    order = sorted(range(len(made.units)), key=lambda k: (min(rank[name] for name in made.units[k]), k))
    lists = [[k for k in order if k > unit][:ahead] for unit in range(len(order))]
    back = [[k for k in reversed(order) if k < unit][:ahead] for unit in range(len(order))]
    return type(made)(
        policy=policy,
        model=made.model,
        architecture="fsdp",
        units=made.units,
        forward_prefetch=tuple(map(tuple, lists)),
        backward_prefetch=tuple(map(tuple, back)),
        reshard_after_forward=made.reshard_after_forward,
        compute_order=None,
    )
