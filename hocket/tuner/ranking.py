"""Every policy and a search on one step and network, ranked, beside the proven bound."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from hocket.graph import StepGraph
from hocket.graph.clipped_step import clipped_for
from hocket.network import Network
from hocket.planner import Architecture, Barrier
from hocket.planner.named_planners import SEARCH
from hocket.sim import check_iterations
from hocket.tuner.planned_policies import planned_policies, searched
from hocket.tuner.policies import check_request, usual_architecture
from hocket.tuner.ranked_rows import RankedRows
from hocket.tuner.tuning import Tuning
from hocket.tuner.tuning_request import TuningRequest
from hocket.tuner.unclipped import best_unclipped


def tune(
    graph: StepGraph,
    network: Network,
    *,
    architecture: Architecture | None = None,
    barrier: Barrier | None = None,
    iterations: int = 20,
    seed: int = 0,
    fusion_bytes: int = 0,
    budget_s: float = 10.0,
    timelines: bool = False,
    clip: bool = False,
    memory_bytes: float | None = None,
    progress: Callable[[str, float, float], None] | None = None,
) -> Tuning:
    """Simulate every policy of an architecture, search for a better plan from theirs, and rank them all.

    Of a step that clips a policy whose plan has reductions in halves is ranked without them, too, as
    "caramel whole", say.

    A step that ``exact`` can plan is planned by it too. With AllReduce DDP is ranked with its default buckets
    ("ddp") and with the best of several sizes ("ddp-best", of ``bucket_bytes``). The search's plan is one of
    the ranked, so what is returned is never slower than any of them.

    Parameters
    ----------
    graph
        One worker's step.
    network
        Links and costs, and the numbers of workers and servers.
    architecture
        "ps", "allreduce" or "fsdp"; None: AllReduce, unless several servers, a window or a barrier ask for
        servers.
    barrier
        "step" or "parameter" in place of the policies' own, of parameter servers.
    iterations
        Steps to simulate of each plan, at least 1.
    seed
        Decides every random draw.
    fusion_bytes
        Horovod's buffer, in bytes, for that policy alone; 0: none.
    budget_s
        Seconds that the search may take, above 0, and ``exact`` as many.
    timelines
        Keep timelines of the best plan and of the usual policy's, as in :class:`hocket.Tuning`.
    clip
        The step clips its gradients by their norm, whether or not it was measured so: caramel, bytescheduler
        and the search may cut reductions in halves, and so may ``exact`` where
        transfers cost nothing to start.
    memory_bytes
        The memory of a worker's device: fully sharded plans that need more are ranked behind all others, and
        the search keeps to it; None: no limit.
    progress
        Called with what is being done, and how much of how much: policies while they are planned and
        simulated; seconds during the search, whose name holds the best step so far.

    Returns
    -------
    The ranking, a :class:`hocket.Tuning`; its ``plan`` is the best one, ``to_dataframe()`` its table.

    Raises
    ------
    HocketError
        When the request cannot be served: a value out of its range, an option of the other architecture, more
        servers than parameters.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> found = hocket.tune(graph, hocket.Network(num_workers=4), budget_s=0.1, iterations=2)
    >>> found.best.iteration_s <= 1.001 * min(row.iteration_s for row in found.ranked)
    True
    """
    began = time.perf_counter()
    check_iterations(iterations)
    architecture = architecture or usual_architecture(network, barrier)
    check_request(graph, network, architecture, barrier, fusion_bytes)
    request = TuningRequest(
        graph=clipped_for(graph, architecture) if clip else graph,
        network=network,
        architecture=architecture,
        barrier=barrier,
        fusion_bytes=fusion_bytes,
        clip=clip,
        memory_bytes=memory_bytes,
        iterations=iterations,
        seed=seed,
        budget_s=budget_s,
        report=progress or (lambda name, done, total: None),
    )
    planned = planned_policies(request)
    found = searched(request, [made.plan for made in planned.values()])
    planned[SEARCH] = found.made
    ranked = RankedRows(request, planned, found.within_s)
    alike = ranked.alike()
    unclipped = None
    if request.graph is not graph:
        unclipped = best_unclipped(graph, network, architecture, iterations=iterations, seed=seed)
    return Tuning(
        ranked=ranked.rows,
        plans={
            row.policy: msgspec.structs.replace(planned[row.policy].plan, predicted=row.predicted())
            for row in ranked.rows
        },
        timelines=ranked.timelines() if timelines else {},
        alike_s={name: row.iteration_s for name, row in alike.items()},
        alike_bound_s=alike[ranked.rows[0].policy].bound_s if alike else 0.0,
        unclipped=unclipped,
        frontier=ranked.frontier(found.frontier) if architecture == "fsdp" else [],
        evaluations=found.made.evaluations,
        wall_s=time.perf_counter() - began,
    )
