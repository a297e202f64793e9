"""A note where racks change nothing of what all-reduces take."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from hocket.network import reduction_s
from hocket.predictor.machines import Machines
from hocket.predictor.prediction_request import Request
from hocket.predictor.prepared import Prepared, prepare
from hocket.predictor.racks import seen_by_all_reduce

_LONG = ("exact", "search")  # to plan by these again would take their budget again


def idle_racks_note(request: Request, num_workers: Iterable[int]) -> str | None:
    """A note where no reduction of any plan takes another time without racks; None where one does.

    None also where there is one rack, and for policies that plan for long.
    """
    machines = request.machines
    if machines.racks == 1 or request.policy in _LONG:
        return None
    together = dataclasses.replace(machines, racks=1, oversubscription=1.0)
    if any(_differ(prepare(request, count, 1), together) for count in num_workers):
        return None
    return (
        "--racks has no effect on an all-reduce ring here: it crosses each rack's uplink once in each"
        " direction, and no uplink is slower than the slowest worker's link; give --oversubscription if yours"
        " are"
    )


def _differ(apart: Prepared, machines: Machines) -> bool:
    """Tell whether a reduction of the plan takes another time between ``machines``."""
    request = apart.request
    flat = seen_by_all_reduce(machines, request.network, apart.network.num_workers)
    sizes = dict(zip(request.graph.parameter_names, request.graph.parameter_bytes.tolist(), strict=True))
    batches = {
        (sum(sizes[name] for name in batch.parameters), batch.chunks) for batch in apart.plan.reductions
    }
    return any(reduction_s(apart.network, *batch) != reduction_s(flat, *batch) for batch in batches)
