"""SimpleFSDP's greedy auto-wrapping: units grow while what they move hides behind computing.

Source: Zhang et al., "SimpleFSDP: Simpler Fully Sharded Data Parallel with torch.compile" (2024). Walking
through the model, a parameter joins the unit at hand where the unit's all-gather still ends within the
computing of the unit before it, and memory stays below the limit; else a unit begins.

Differs from the paper
----------------------
* Units are made of whole blocks: FSDP2's are modules, while the paper's are buckets of a compiled graph.
* The limit is that of the whole step, as the simulator counts it.
"""

from __future__ import annotations

from hocket.graph import StepGraph
from hocket.graph.unit_places import ParameterPlaces
from hocket.network import Network, ShardGroups
from hocket.planner.sharded.pieces import UnitChoice
from hocket.planner.sharded.unit_search import Judge


def simplefsdp_choice(graph: StepGraph, network: Network, judge: Judge) -> UnitChoice:
    """The greedy choice, one unit ahead; ``judge`` knows whether a choice is within the limit."""
    found, groups = ParameterPlaces(graph), ShardGroups.of(network)
    blocks, oracle_s = judge.pieces.blocks, graph.oracle_s[found.order.operations]
    places = [found.of(block) for block in blocks]
    cuts: list[int] = []
    compute_before_s = 0.0
    begin = 0
    for k in range(1, len(blocks)):
        joined = sum(place.gathered_bytes for place in places[begin : k + 1])
        hides = groups.gather_s(joined) <= compute_before_s
        rest = tuple(range(k + 1, len(blocks)))
        fits = judge.cost(UnitChoice(cuts=(*cuts, *rest), forward=1, backward=1))[0] <= 0
        if hides and fits:
            continue
        compute_before_s = sum(
            float(oracle_s[place.forward[0] : place.forward[1]].sum()) for place in places[begin:k]
        )
        cuts.append(k)
        begin = k
    return UnitChoice(cuts=tuple(cuts), forward=1, backward=1)
