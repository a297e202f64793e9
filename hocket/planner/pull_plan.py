"""The plan around an order of pulls, which planners of pulls share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hocket.graph import Plan, Pull, Push, StepGraph


def pull_plan(
    policy: str,
    graph: StepGraph,
    pulls: Sequence[Sequence[int]],
    priorities: Iterable[int] | None = None,
    pushes: Sequence[Sequence[int]] | None = None,
) -> Plan:
    """A parameter-server plan that sends the batches ``pulls`` (parameter indices) in the listed order.

    ``priorities``: one a batch, the position by default. ``pushes``: batches of gradients; by default each
    gradient leaves alone, in the order in which gradients become complete.
    """
    names = graph.parameter_names
    if pushes is None:
        pushes = [[i] for i in gradient_order(graph)]
    return Plan(
        policy=policy,
        model=graph.model,
        architecture="ps",
        pulls=tuple(
            Pull(parameters=tuple(names[i] for i in batch), priority=priority)
            for batch, priority in zip(
                pulls, range(len(pulls)) if priorities is None else priorities, strict=True
            )
        ),
        pushes=tuple(Push(parameters=tuple(names[i] for i in batch)) for batch in pushes),
        compute_order=None,
    )


def gradient_order(graph: StepGraph) -> list[int]:
    """The trained parameters in the order in which the program completes their gradients."""
    ready = graph.gradient_ready()
    return sorted((i for i in range(graph.num_parameters) if ready[i] >= 0), key=lambda i: (ready[i], i))
