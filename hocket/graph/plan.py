"""Plans: what is transferred together, in which order, and in which order operations run; plain data."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from hocket.notebook import ObjectSummary, Summarized
from hocket.text import counted, duration_text

Names = tuple[str, ...]
Batch = Annotated[Names, msgspec.Meta(min_length=1)]
UnitIndices = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]


class Pull(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One transfer of parameters from a parameter server.

    Attributes
    ----------
    parameters
        The names of those that travel together.
    priority
        0 or more; pulls of equal priority may go in any order.
    chunks
        The number of equal slices, at least 1, in which a parameter that stands alone travels.

    Examples
    --------
    >>> import hocket
    >>> hocket.Pull(parameters=("0.weight", "0.bias"), priority=0).chunks
    1
    """

    parameters: Batch
    priority: Annotated[int, msgspec.Meta(ge=0)]
    chunks: Annotated[int, msgspec.Meta(ge=1)] = 1


class Push(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One transfer of gradients to a parameter server, ready when the last of its gradients is complete.

    Attributes
    ----------
    parameters
        The names of those whose gradients travel together.
    chunks
        The number of equal slices, as of the parameter's pull; each is updated and pulled by itself.

    Examples
    --------
    >>> import hocket
    >>> hocket.Push(parameters=("0.weight",), chunks=4).chunks
    4
    """

    parameters: Batch
    chunks: Annotated[int, msgspec.Meta(ge=1)] = 1


class Reduction(msgspec.Struct, frozen=True, kw_only=True):
    """One AllReduce of a batch of gradients.

    Attributes
    ----------
    parameters
        The names of those whose gradients are reduced together.
    chunks
        The number of parts, at least 1, that are sent and reduced in a pipeline.
    window
        The wait for its end: "backward", all of the next step; "forward", the first reader of its parameters
        in the next step alone.
    halves
        True: a reduce-scatter, which is all that a norm over all gradients waits for, and behind that norm an
        all-gather, whose end ``window`` is about. They are for steps that clip by norm.
    slice
        (first, end, n): the slices ``first`` to ``end`` - 1 of n equal ones of a parameter that stands alone,
        which travel in the order of their numbers; None: the whole parameters.

    Examples
    --------
    >>> import hocket
    >>> hocket.Reduction(parameters=("0.weight",), window="forward", slice=(0, 1, 2)).chunks
    1
    """

    parameters: Batch
    chunks: Annotated[int, msgspec.Meta(ge=1)] = 1
    window: Literal["backward", "forward"] = "backward"
    slice: tuple[int, int, int] | None = None
    halves: bool = False


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """The simulator's expectation of a plan; times in seconds.

    Attributes
    ----------
    iteration_s, bound_s, compute_s, communication_s, overlap, utilization
        As in :class:`hocket.ResultRow`.

    Examples
    --------
    >>> import hocket
    >>> found = hocket.tune(hocket.load_step("step.json"), hocket.Network(), budget_s=0.1, iterations=2)
    >>> found.plan.predicted.iteration_s == found.best.iteration_s
    True
    """

    iteration_s: float
    bound_s: float
    compute_s: float
    communication_s: float
    overlap: float
    utilization: float


class Plan(Summarized, msgspec.Struct, frozen=True, kw_only=True):
    """A schedule for one step: what is transferred together, and in which order it goes and operations run.

    Attributes
    ----------
    policy, model
        The names of what planned it, and of the step that it is for.
    architecture
        "ps" (parameter servers), "allreduce", or "fsdp" (fully sharded: torch's FSDP2).
    pulls, pushes
        Transfers from and to parameter servers (:class:`hocket.Pull`, :class:`hocket.Push`); pulls are sent
        in the listed order.
    reductions
        AllReduces (:class:`hocket.Reduction`).
    units
        The names of the parameters that are gathered together, and their gradients reduced and scattered, a
        tuple a unit, in the order in which the forward pass first reads them; fully sharded only.
    forward_prefetch, backward_prefetch
        For each unit the indices of those whose all-gather is issued, in this order, when its own has been
        waited for and its computing begins, as ``set_modules_to_forward_prefetch`` and ``..._backward_...``
        have it: later units in the forward pass, earlier ones in the backward pass; an empty tuple for none.
        None leaves either to torch.
    reshard_after_forward
        For each unit whether its full parameters are freed after its forward pass, and gathered again before
        its backward pass.
    compute_order
        The operations' names in the order that is kept strictly; None lets a processor take any ready
        operation, the first in the step file first.
    issue
        The order in which gradients leave: "listed" keeps that of ``pushes`` or ``reductions`` strictly; with
        "ready" the first listed one of those that are ready goes next, reductions of an older step before
        those of a newer one. None is "ready" for pushes and "listed" for reductions.
    barrier
        With "step" a parameter server's next step starts when this one has ended everywhere; with "parameter"
        each parameter is pulled again as soon as it is updated.
    predicted
        The simulator's expectation of it, a :class:`hocket.graph.Predicted`; None: not simulated.
    workers
        The number of workers that it was planned for; None: not known.
    bucket_bytes
        The size of DDP's buckets that policy "ddp-best" chose; None: none was chosen.

    Examples
    --------
    >>> import hocket
    >>> plan = hocket.load_plan("plan.json")
    >>> plan.architecture
    'allreduce'
    """

    policy: str
    model: str
    architecture: Literal["ps", "allreduce", "fsdp"]
    pulls: tuple[Pull, ...] = ()
    pushes: tuple[Push, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    units: tuple[Batch, ...] = ()
    forward_prefetch: tuple[UnitIndices, ...] | None = None
    backward_prefetch: tuple[UnitIndices, ...] | None = None
    reshard_after_forward: tuple[bool, ...] = ()
    compute_order: Names | None
    issue: Literal["listed", "ready"] | None = None
    barrier: Literal["step", "parameter"] = "step"
    predicted: Predicted | None = None
    workers: Annotated[int, msgspec.Meta(ge=1)] | None = None
    bucket_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def _summary(self) -> ObjectSummary:
        orders = {"listed": "strictly as listed", "ready": "of those that are ready the first listed"}
        issue = self.issue or ("ready" if self.architecture == "ps" else "listed")
        computed = "any that is ready" if self.compute_order is None else "in the plan's order"
        lines = [("transfers", transfers_text(self))]
        if self.architecture != "fsdp":
            lines += [("order", orders[issue]), ("operations", computed)]
        if self.architecture == "ps":
            lines.append(("barrier", f"a {self.barrier}"))
        if self.predicted is not None:
            step, bound = (duration_text(s) for s in (self.predicted.iteration_s, self.predicted.bound_s))
            lines.append(("predicted", f"{step} a step; the bound is {bound}"))
        where = ARCHITECTURE_NAMES[self.architecture]
        return ObjectSummary(f"Plan '{self.policy}' of {self.model or 'a model'}, {where}", lines)


ARCHITECTURE_NAMES = {"ps": "parameter servers", "allreduce": "all-reduce", "fsdp": "fully sharded"}


def transfers_text(plan: Plan) -> str:
    """The number of a plan's transfers; how many AllReduces are slices and run on; units' prefetch."""
    if plan.architecture == "ps":
        return f"{counted(len(plan.pulls), 'pull')}, {len(plan.pushes)} pushes"
    if plan.architecture == "fsdp":
        resharded = sum(plan.reshard_after_forward)
        ahead = ", ".join(
            f"{way} {_ahead_text(prefetch)}"
            for way, prefetch in (("forward", plan.forward_prefetch), ("backward", plan.backward_prefetch))
        )
        units = counted(len(plan.units), "unit")
        return f"{units}, {resharded} of them resharded after their forward pass; prefetch: {ahead}"
    sliced = sum(r.slice is not None for r in plan.reductions)
    forward = sum(r.window == "forward" for r in plan.reductions)
    halved = sum(r.halves for r in plan.reductions)
    return (
        f"{counted(len(plan.reductions), 'reduction')}, {sliced} of them slices,"
        f" {forward} may run on into the next forward pass"
    ) + (f", {halved} in halves" if halved else "")


def _ahead_text(prefetch: tuple[UnitIndices, ...] | None) -> str:
    if prefetch is None:
        return "torch's own"
    most = max((len(units) for units in prefetch), default=0)
    return f"up to {most} ahead" if most else "none"


def planned_for_others(plan: Plan, workers: int) -> str:
    """The remark that ``plan`` was made for another number of workers than these; "" where it was not."""
    if plan.workers in (None, workers):
        return ""
    return f"plan '{plan.policy}' was planned for {counted(plan.workers, 'worker')}; this job has {workers}"


def has_halves(plan: Plan) -> bool:
    """Tell whether any reduction of ``plan`` goes in halves."""
    return any(reduction.halves for reduction in plan.reductions)


def batch_name(names: tuple[str, ...]) -> str:
    """A batch as a timeline labels it."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
