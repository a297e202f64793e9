"""DDP's buckets at the size, of those that users try, with which a simulated step is shortest."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner.allreduce_baselines import DDP_BUCKET_BYTES, DDP_BUCKETS_MIB, ddp
from hocket.planner.named_planners import BEST_BUCKETS
from hocket.sim import simulate


def best_buckets(
    graph: StepGraph,
    network: Network,
    *,
    iterations: int = 20,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Plan:
    """The plan of DDP with its best bucket size, in simulations of ``iterations`` steps drawn by ``seed``.

    Of sizes with steps of the same length it is DDP's default, else the smallest. ``progress`` is called
    with the size that is simulated next, in words, and sizes done and in all.
    """
    sizes = sorted((mib << 20 for mib in DDP_BUCKETS_MIB), key=lambda size: size != DDP_BUCKET_BYTES)
    best, best_s, known = None, 0.0, []
    for done, size in enumerate(sizes):
        if progress is not None:
            progress(f"buckets of {size >> 20} MiB", done, len(sizes))
        made = ddp(graph, network, size)
        if made.reductions in known:  # as those of small models are
            continue
        known.append(made.reductions)
        step_s = simulate(graph, made, network, iterations=iterations, seed=seed).row.iteration_s
        if best is None or step_s < best_s:
            best, best_s = msgspec.structs.replace(made, policy=BEST_BUCKETS, bucket_bytes=size), step_s
    assert best is not None, "the default is one of the sizes"
    return best
