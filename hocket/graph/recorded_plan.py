"""The plan that a recorded job ran under, as far as its step knows it."""

from __future__ import annotations

from hocket.graph.plan import Plan, Reduction
from hocket.graph.step import StepGraph


def recorded_plan(graph: StepGraph) -> Plan | None:
    """The recorded all-reduces or units of ``graph``; None where they are not its own, or not known."""
    run = graph.recorded
    if run is None:
        return None
    names = graph.parameter_names
    if run.sharded is not None:
        units = run.sharded.units
        if sorted(name for unit in units for name in unit) != sorted(names):
            return None
        return Plan(
            policy="recorded",
            model=graph.model,
            architecture="fsdp",
            units=units,
            forward_prefetch=run.sharded.forward_prefetch,
            backward_prefetch=run.sharded.backward_prefetch,
            reshard_after_forward=run.sharded.reshard_after_forward,
            compute_order=None,
            workers=run.workers,
        )
    trained = {name for name, made in zip(names, graph.produced, strict=True) if made}
    if {name for reduction in run.reductions for name in reduction} != trained:
        return None
    return Plan(
        policy="recorded",
        model=graph.model,
        architecture="allreduce",
        reductions=tuple(Reduction(parameters=reduced) for reduced in run.reductions),
        compute_order=None,
        workers=run.workers,
    )
