"""TIC: order pulls by the graph alone (TicTac section 4.2, Algorithm 2).

Each transfer costs 1 and each operation 0; a pull's priority is M+(r), the least number of pulls after which
some operation that needs r and others can run. Equal priorities mean that the order does not matter.

Differs from the paper
----------------------
* Priorities are dense ranks (section 5.1 enforces them so), infinite M+ last.
* Something has to be sent first among equals: they are listed by need, the first read earliest, not by name.
"""

from __future__ import annotations

import numpy as np

from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.dependencies import dependencies
from hocket.network import Network
from hocket.planner.pull_plan import pull_plan


def tic(graph: StepGraph, network: Network) -> Plan:
    """Plan the pulls of ``graph``; the network does not matter to TIC."""
    del network
    ranks = tic_ranks(graph)
    first_reader = graph.first_reader()
    ordered = sorted(range(graph.num_parameters), key=lambda r: (ranks[r], first_reader[r], r))
    return pull_plan("tic", graph, [[r] for r in ordered], [int(ranks[r]) for r in ordered])


def tic_ranks(graph: StepGraph) -> Indices:
    """Dense ranks of M+(r) with all pulls outstanding, shape (p,); 0 goes first."""
    needs = dependencies(graph)
    impending = np.full(graph.num_parameters, np.iinfo(np.int64).max, dtype=np.int64)
    rows = needs.rows()
    sizes = rows.lengths()[rows.row_of_entry()]
    several = sizes > 1
    np.minimum.at(impending, rows.indices[several], sizes[several])
    return np.unique(impending, return_inverse=True)[1].astype(np.int64)
