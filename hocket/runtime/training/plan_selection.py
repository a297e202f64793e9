"""From an unknown model to a plan in force: learn, profile, plan, try, choose.

A generator that is resumed before each step. Every rank runs it at the same step, so it may talk to the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

import msgspec

from hocket.graph import Plan, StepGraph, step_from_rows
from hocket.network import Network
from hocket.runtime.observe.step_rows import unused_row
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.plan_trials import Choice, TrialPlan, Trials, enforce
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_value, gather_values

_LEARNING_STEPS = 2  # gradients leave at the end of the backward pass, readers are noted
_PROFILED_STEPS = 6


class Planner(Protocol):
    """The interface of a planner of steps, the same on every rank."""

    @property
    def on_trial(self) -> bool:
        """True if candidates are tried beside the baseline; else the first of them holds."""

    @property
    def needs_times(self) -> bool:
        """True if plans depend on how long operations and transfers take; else the baseline holds."""

    def baseline(self, graph: StepGraph) -> Plan:
        """DistributedDataParallel's own plan."""

    def candidates(self, graph: StepGraph, network: Network) -> Sequence[Plan]:
        """Plans to try beside the baseline, the most promising first; called on rank 0 alone."""


def choose_plan(
    training: AllReduceTraining,
    choice: Choice,
    planner: Planner,
    network: Callable[[], Network],
    control: GlooGroup,
    *,
    given_plan: Plan | None,
) -> Generator[None, None, None]:
    """Bring a plan into force; ``choice`` shows how far it is.

    ``network`` measures it, where none was given. ``given_plan``: one that holds as soon as the model is
    known; else the planner's, after steps under the baseline: the first one without a trial, or, where they
    are on trial, whichever is the fastest of all.
    """
    choice.enter("learning", f": {_LEARNING_STEPS} steps show which module reads which parameter first")
    for _ in range(_LEARNING_STEPS):
        yield
    _end_learning(training, control)
    plans: Sequence[Plan] = [] if given_plan is None else [given_plan]
    orders: list[list[str] | None] = [None for _ in plans]
    if given_plan is None or (training.compiled_step is not None and given_plan.compute_order is not None):
        yield from _profile(training, choice)
    if given_plan is None:
        choice.enter("planning", ": the network is measured unless it is given, and plans are made for it")
        training.finish_transfers()
        choice.network = choice.network or network()
    if control.rank == 0 and choice.graph is not None:
        if given_plan is None and choice.network is not None:
            plans = [
                msgspec.structs.replace(plan, workers=choice.ranks)
                for plan in planner.candidates(choice.graph, choice.network)
            ]
        orders = [_gradient_order(choice.graph, plan) for plan in plans]
    mine = [TrialPlan(plan, order) for plan, order in zip(plans, orders, strict=True)]
    tried = broadcast_value(mine, control, list[TrialPlan])
    if tried and not (planner.on_trial and given_plan is None):
        alone = given_plan is choice.plan
        enforce(training, choice, tried[0])
        asked = f"policy '{tried[0].plan.policy}' was asked for" if given_plan is None else "it was given"
        choice.settle("one rank alone sends nothing" if alone else f"{asked}, and no other was tried")
    elif tried:
        trials = Trials(training, choice, [TrialPlan(choice.plan, None), *tried], control)
        choice.settle((yield from trials.run()))
    else:
        choice.settle("no other was found")


def _profile(training: AllReduceTraining, choice: Choice) -> Generator[None, None, None]:
    """Run some steps under the plan in force and keep what they show of the step."""
    choice.enter("profiling", f": {_PROFILED_STEPS} steps under plan '{choice.plan.policy}'")
    training.recorder.forget()
    if training.compiled_step is not None:
        training.compiled_step.record(True)
    for _ in range(_PROFILED_STEPS):
        yield
    name = type(training.model).__name__
    choice.graph = training.recorder.graph(name, 1)
    if training.compiled_step is not None:
        training.compiled_step.record(False)
        rows = training.compiled_step.step_rows(name, 1)
        produced = {name for row in rows.operations for name in row.produces}
        unused = [name for name in training.parameters if name not in produced]
        last = rows.operations[-1].name
        rows.operations.append(unused_row(last, unused))
        rows.operations.extend(training.recorder.update_rows())
        choice.graph = step_from_rows(rows)


def _gradient_order(graph: StepGraph, plan: Plan) -> list[str] | None:
    """In which order ``plan`` completes gradients; by reductions, if its operations are another step's."""
    if plan.compute_order is None:
        return None
    if set(graph.operation_names).issuperset(plan.compute_order):
        from hocket.runtime.compiled.compiled_profile import (
            gradient_order_of,  # torch's compiler, where it is needed
        )

        return gradient_order_of(graph, plan.compute_order)
    return list(dict.fromkeys(name for reduction in plan.reductions for name in reduction.parameters))


def _end_learning(training: AllReduceTraining, control: GlooGroup) -> None:
    """Agree on what the first steps showed of the model; gradients may leave from now on."""
    names = {p: name for name, p in training.parameters.items()}
    often = gather_values([names[p] for p in training.repeated_parameters], control, list[str])
    late = {name for each in often for name in each}
    training.late_parameters = frozenset(p for name, p in training.parameters.items() if name in late)
    if late:
        training.rounds.barriers.stand(
            "gradients that come in parts (reentrant checkpoints) leave after the backward pass",
            [name for name in training.parameters if name in late],
        )
    training.end_learning()
