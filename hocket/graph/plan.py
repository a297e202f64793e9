"""What is transferred together and in which order, and in which order operations run: plain data."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Names = tuple[str, ...]
Batch = Annotated[Names, msgspec.Meta(min_length=1)]


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """One transfer from a parameter server; equal priorities mean that their order does not matter."""

    parameters: Batch
    priority: Annotated[int, msgspec.Meta(ge=0)]


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """One transfer of gradients to a parameter server, ready when the last of its gradients is complete."""

    parameters: Batch


class Reduction(msgspec.Struct, frozen=True, kw_only=True):
    """One AllReduce, cut into ``chunks``, meant to travel during ``window``."""

    parameters: Batch
    chunks: Annotated[int, msgspec.Meta(ge=1)] = 1
    window: Literal["backward", "forward"] = "backward"


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

    ``pulls`` are sent in the listed order; of the ``pushes`` that are ready the first listed goes first;
    ``reductions`` are issued in the listed order. ``compute_order`` is kept strictly; None lets a processor
    take any ready operation, the first in the step file first.
    """

    policy: str
    model: str
    architecture: Literal["ps", "allreduce"]
    pulls: tuple[Pull, ...] = ()
    pushes: tuple[Push, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    compute_order: Names | None
    predicted: Predicted | None = None
