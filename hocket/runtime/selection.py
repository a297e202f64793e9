"""From an unknown model to a plan in force: learn, profile, plan, try, choose.

A generator that is resumed before each step. Every rank runs it at the same step, so it may talk to the
others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch.distributed as dist

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.runtime.agreement import from_first, gathered, largest
from hocket.runtime.buckets import lay_out
from hocket.runtime.training import Training

_LEARNING_STEPS = 2  # gradients leave at the end of the backward pass, readers are noted
_PROFILED_STEPS = 6
_ROUNDS = 3
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
    ``trials``: seconds a step of each plan that was tried, the slowest rank's, by its name, the baseline
    among them.
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
    control: dist.ProcessGroup,
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
    if given is not None:
        _enforce(training, choice, given)
        choice.settled = True
        return
    training.recorder.forget()
    for _ in range(_PROFILED_STEPS):
        yield
    choice.graph = training.recorder.graph(type(training.model).__name__, 1)
    choice.network = network()
    plans: Sequence[Plan] = []
    if dist.get_rank(control) == 0 and choice.graph is not None:
        plans = planner.candidates(choice.graph, choice.network)
    plans = from_first(plans, control)
    if plans and not on_trial:
        _enforce(training, choice, plans[0])
    elif plans:
        yield from _try(training, choice, [choice.plan, *plans], control)
    choice.settled = True


def _learned(training: Training, control: dist.ProcessGroup) -> None:
    """Agree on what the first steps showed of the model; gradients may leave from now on."""
    names = {p: name for name, p in training.parameters.items()}
    often = [names[p] for p, count in training.fired.items() if count > training.steps]
    shown = gathered((often, training.late_buffers), control)
    late = {name for names_, _ in shown for name in names_}
    training.late = frozenset(p for name, p in training.parameters.items() if name in late)
    training.late_buffers = any(buffers for _, buffers in shown)
    if late:
        training.barriers[
            "gradients that come in parts (reentrant checkpoints) leave after the backward pass"
        ] = None
    training.learning = False
    training.readers.settle_hooks()


def _enforce(training: Training, choice: Choice, plan: Plan) -> None:
    if plan is not choice.plan:
        training.enforce(lay_out(plan, training.parameters))
        choice.plan = plan


def _try(
    training: Training, choice: Choice, plans: Sequence[Plan], control: dist.ProcessGroup
) -> Generator[None, None, None]:
    """Run every plan in turn, several times, and keep the fastest; a tie goes to the first."""
    seconds: list[list[float]] = [[] for _ in plans]
    for turn in range(_ROUNDS):
        order = range(len(plans)) if turn % 2 == 0 else range(len(plans) - 1, -1, -1)
        for k in order:
            _enforce(training, choice, plans[k])
            for _ in range(_WARM_STEPS):
                yield
            for _ in range(_STEPS_PER_TRIAL):
                started = time.perf_counter()
                yield
                seconds[k].append(time.perf_counter() - started)
    medians = largest([float(np.median(s)) for s in seconds], control)
    choice.trials = {plan.policy: slowest for plan, slowest in zip(plans, seconds, strict=True)}
    _enforce(training, choice, plans[int(np.argmin(medians))])
