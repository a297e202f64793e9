"""From an unknown model to a plan in force: learn, profile, plan, try, choose.

A generator that is resumed before each step. Every rank runs it at the same step, so it may talk to the
others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hocket.graph import Plan, StepGraph, step_from_rows
from hocket.network import Network
from hocket.runtime.buckets import lay_out
from hocket.runtime.group import Group, from_first, gathered, largest
from hocket.runtime.rows import unused_row
from hocket.runtime.training import Training

_LEARNING_STEPS = 2  # gradients leave at the end of the backward pass, readers are noted
_PROFILED_STEPS = 6
_HEATS = 2  # rounds of all plans
_LEAD = 3  # turns that one of the last two has to win more often than the other
_MOST_TURNS = 9  # of those two; odd, so that one of them has won more
_WORTH = 0.98  # of the time without: what running on into the next forward pass has to reach
_STEPS_PER_TRIAL = 4
_WARM_STEPS = 1  # the first step of a plan still ends the last one's transfers


class Planner(Protocol):
    """What plans a step; called on rank 0 alone."""

    def baseline(self, graph: StepGraph) -> Plan:
        """DistributedDataParallel's own plan."""

    def candidates(self, graph: StepGraph, network: Network) -> Sequence[Plan]:
        """Plans to try beside the baseline, the most promising first; one that is to hold is alone."""


@dataclass(kw_only=True)
class Choice:
    """What was chosen and why.

    ``plan``: in force now; ``settled``: whether it stays; ``graph``, ``network``: what it was planned for;
    ``trials``: seconds a step of each plan that was tried, the slowest rank's in each turn, by its name, the
    baseline among them; the fastest have more turns.
    """

    plan: Plan
    settled: bool = False
    graph: StepGraph | None = None
    network: Network | None = None
    trials: dict[str, list[float]] = field(default_factory=dict)


def selection(
    training: Training,
    choice: Choice,
    planner: Planner,
    network: Callable[[], Network],
    control: Group,
    *,
    given: Plan | None,
    on_trial: bool,
) -> Generator[None, None, None]:
    """Bring a plan into force; ``choice`` shows how far it is.

    ``given``: a plan that holds as soon as the model is known; else the planner's, after steps under the
    baseline: the first one without a trial, or, ``on_trial``, whichever is the fastest of all.
    """
    for _ in range(_LEARNING_STEPS):
        yield
    _learned(training, control)
    orders: Sequence[Sequence[str] | None] = [None]
    plans: Sequence[Plan] = [] if given is None else [given]
    if given is None or (training.compiled is not None and given.compute_order is not None):
        yield from _profile(training, choice)
    if given is None:
        training.settle_all()
        choice.network = network()
    if control.rank == 0 and choice.graph is not None:
        if given is None and choice.network is not None:
            plans = planner.candidates(choice.graph, choice.network)
        orders = [_gradient_order(choice.graph, plan) for plan in plans]
    plans, orders = from_first((plans, orders), control)
    tried = [Scheduled(plan, order) for plan, order in zip(plans, orders, strict=True)]
    if tried and not (on_trial and given is None):
        _enforce(training, choice, tried[0])
    elif tried:
        yield from _try(training, choice, [Scheduled(choice.plan, None), *tried], control)
    choice.settled = True


@dataclass(frozen=True)
class Scheduled:
    """A plan and, where it has an order of operations, in which order that completes gradients."""

    plan: Plan
    gradients: Sequence[str] | None


def _profile(training: Training, choice: Choice) -> Generator[None, None, None]:
    """Run some steps under the plan in force and keep what they show of the step."""
    training.recorder.forget()
    if training.compiled is not None:
        training.compiled.record(True)
    for _ in range(_PROFILED_STEPS):
        yield
    name = type(training.model).__name__
    choice.graph = training.recorder.graph(name, 1)
    if training.compiled is not None:
        training.compiled.record(False)
        rows = training.compiled.step_rows(name, 1)
        produced = {name for row in rows.operations for name in row.produces}
        unused = [name for name in training.parameters if name not in produced]
        last = rows.operations[-1].name
        rows.operations.append(unused_row(last, unused))
        rows.operations.extend(training.recorder.update_rows())
        choice.graph = step_from_rows(rows)


def _gradient_order(graph: StepGraph, plan: Plan) -> Sequence[str] | None:
    """In which order ``plan`` completes gradients; by reductions, if its operations are another step's."""
    if plan.compute_order is None:
        return None
    if set(graph.operation_names).issuperset(plan.compute_order):
        from hocket.runtime.compiled_rows import gradient_order_of  # torch's compiler, where it is needed

        return gradient_order_of(graph, plan.compute_order)
    return list(dict.fromkeys(name for reduction in plan.reductions for name in reduction.parameters))


def _learned(training: Training, control: Group) -> None:
    """Agree on what the first steps showed of the model; gradients may leave from now on."""
    names = {p: name for name, p in training.parameters.items()}
    often = [names[p] for p in training.often]
    shown = gathered((often, training.late_buffers, training.changed_buffers), control)
    late = {name for names_, _, _ in shown for name in names_}
    training.late = frozenset(p for name, p in training.parameters.items() if name in late)
    training.late_buffers = any(buffers for _, buffers, _ in shown)
    if training.buffers is not None:
        training.buffers.changing = any(changed for _, _, changed in shown)
    if late:
        training.rounds.barriers[
            "gradients that come in parts (reentrant checkpoints) leave after the backward pass"
        ] = None
    training.learned()


def _enforce(training: Training, choice: Choice, wanted: Scheduled) -> None:
    if wanted.plan is choice.plan:
        return
    training.enforce(lay_out(wanted.plan, training.parameters))
    choice.plan = wanted.plan
    if training.compiled is not None:
        names = wanted.gradients
        training.wanted_order = None if names is None else [training.parameters[name] for name in names]
        training.compiled.recompile()


def _try(
    training: Training, choice: Choice, tried: Sequence[Scheduled], control: Group
) -> Generator[None, None, None]:
    """Run every plan in turn, then the two fastest by turns until one is ahead, which stays.

    What disturbs a step makes it longer, never shorter: in the heats a plan is as fast as in its fastest
    turn. In the final two turns that follow each other are compared, so that what changes slowly disturbs
    both, and only who was faster counts, not by how much, so that one long step decides one turn alone.
    """
    every = range(len(tried))
    trials: list[list[float]] = [[] for _ in tried]
    for turn in range(_HEATS):
        yield from _turn(training, choice, tried, every if turn % 2 == 0 else every[::-1], trials, control)
    first, second = _finalists(tried, trials)
    asked = _WORTH if _runs_on(tried[second].plan) and not _runs_on(tried[first].plan) else 1.0
    lead = 0
    for turn in range(_MOST_TURNS):
        left = (first, second) if turn % 2 == 0 else (second, first)
        yield from _turn(training, choice, tried, left, trials, control)
        lead += 1 if trials[second][-1] < trials[first][-1] * asked else -1
        if abs(lead) == _LEAD:
            break
    choice.trials = {each.plan.policy: s for each, s in zip(tried, trials, strict=True)}
    _enforce(training, choice, tried[second if lead > 0 else first])


def _turn(
    training: Training,
    choice: Choice,
    tried: Sequence[Scheduled],
    order: Sequence[int],
    trials: Sequence[list[float]],
    control: Group,
) -> Generator[None, None, None]:
    """Some steps of each plan of ``order``; ``trials`` gets the slowest rank's seconds a step."""
    seconds = []
    for k in order:
        _enforce(training, choice, tried[k])
        for _ in range(_WARM_STEPS):
            yield
        started = time.perf_counter()
        for _ in range(_STEPS_PER_TRIAL):
            yield
        seconds.append((time.perf_counter() - started) / _STEPS_PER_TRIAL)
    for k, slowest_s in zip(order, largest(seconds, control), strict=True):
        trials[k].append(slowest_s)


def _finalists(tried: Sequence[Scheduled], trials: Sequence[Sequence[float]]) -> tuple[int, int]:
    """The two fastest, one of which does not run on into the next forward pass: the baseline does not.

    The second has to beat the first: it runs on where only one does, else it comes later.
    """
    fastest = sorted(range(len(tried)), key=lambda k: min(trials[k]))
    ordinary = next(k for k in fastest if not _runs_on(tried[k].plan))
    other = fastest[1] if fastest[0] == ordinary else fastest[0]
    if _runs_on(tried[other].plan):
        return ordinary, other
    return min(ordinary, other), max(ordinary, other)


def _runs_on(plan: Plan) -> bool:
    return any(reduction.window == "forward" for reduction in plan.reductions)
