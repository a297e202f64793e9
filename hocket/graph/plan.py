"""What is transferred together and in which order, and in which order operations run: plain data."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Names = tuple[str, ...]
Batch = Annotated[Names, msgspec.Meta(min_length=1)]


class Pull(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One transfer from a parameter server; equal priorities mean that their order does not matter.

    ``chunks``: one parameter alone may travel in that many equal slices, each by itself.
    """

    parameters: Batch
    priority: Annotated[int, msgspec.Meta(ge=0)]
    chunks: Annotated[int, msgspec.Meta(ge=1)] = 1


class Push(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One transfer of gradients to a parameter server, ready when the last of its gradients is complete.

    ``chunks`` as for its pull: the slices are updated and pulled one by one.
    """

    parameters: Batch
    chunks: Annotated[int, msgspec.Meta(ge=1)] = 1


class Reduction(msgspec.Struct, frozen=True, kw_only=True):
    """One AllReduce of a batch of gradients, cut into ``chunks`` that are sent and reduced in a pipeline.

    ``window``: "backward" means that the next step waits for its end; "forward" that only the first reader
    of its parameters in the next step does. ``slice``: (first, end, n) for the slices ``first`` to
    ``end`` - 1 of n equal ones of one parameter that stands alone; they travel in the order of their numbers,
    and other reductions between them.
    """

    parameters: Batch
    chunks: Annotated[int, msgspec.Meta(ge=1)] = 1
    window: Literal["backward", "forward"] = "backward"
    slice: tuple[int, int, int] | None = None


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulator expects of the plan; times in seconds."""

    iteration_s: float
    bound_s: float
    compute_s: float
    communication_s: float
    overlap: float
    utilization: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule for one step.

    ``pulls`` are sent in the listed order. ``issue`` says how gradients leave: "listed" keeps the order of
    ``pushes`` or ``reductions`` strictly; with "ready" the first listed one of those that are ready goes
    next, reductions of an older step before those of a newer one. None is "ready" for pushes and "listed"
    for reductions. ``compute_order`` is kept strictly; None lets a processor take any ready operation, the
    first in the step file first. ``barrier``: with "step" a parameter server's next step starts when this one
    has ended everywhere; with "parameter" each parameter is pulled again as soon as it is updated.
    """

    policy: str
    model: str
    architecture: Literal["ps", "allreduce"]
    pulls: tuple[Pull, ...] = ()
    pushes: tuple[Push, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    compute_order: Names | None
    issue: Literal["listed", "ready"] | None = None
    barrier: Literal["step", "parameter"] = "step"
    predicted: Predicted | None = None


def batch_name(names: tuple[str, ...]) -> str:
    """A batch as a timeline labels it."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
