"""From an unknown model to a plan in force: learn, profile, plan, try, choose.

A generator that is resumed before each step. Every rank runs it at the same step, so it may talk to the
others.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from typing import Protocol

import msgspec

from hocket.graph import Plan, StepGraph
from hocket.logs import logger
from hocket.network import Network
from hocket.network.file import MeasuredPoint
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.choice_memory import ChoiceMemory
from hocket.runtime.training.consistency import check_same_gradient_type
from hocket.runtime.training.kept_choice_check import still_holds
from hocket.runtime.training.plan_drift import REST_STEPS, steps_until_drift
from hocket.runtime.training.plan_trials import MOST_STEPS, Choice, TrialPlan, Trials, enforce
from hocket.runtime.training.planning import Planning, made_plans
from hocket.runtime.training.step_inputs import InputNotes, StepInputs
from hocket.runtime.training.step_profile import (
    PROFILED_STEPS,
    MeasuredNetwork,
    agree_on_norms,
    profiled,
)
from hocket.runtime.transfers.gloo_group import (
    GlooGroup,
    broadcast_value,
    gather_values,
)

_LOADING_S = 2.0  # at most, from the learning steps on; without kernels on disk it takes ten times as long
_LEARNING_STEPS = 2  # gradients leave at the end of the backward pass, readers are noted


class Planner(Protocol):
    """The interface of a planner of steps, the same on every rank."""

    @property
    def policy(self) -> str:
        """The name of what it plans by."""

    @property
    def on_trial(self) -> bool:
        """True if candidates are tried beside the baseline; else the first of them holds."""

    @property
    def needs_times(self) -> bool:
        """True if plans depend on how long operations and transfers take; else the baseline holds."""

    def baseline(self, graph: StepGraph) -> Plan:
        """DistributedDataParallel's own plan."""

    def prepare(self) -> None:
        """Load meanwhile what planning needs; called on rank 0 alone, like all below."""

    def wait_until_prepared(self, limit_s: float) -> None:
        """Load it, if nobody has, and wait ``limit_s`` seconds at most; the rest is behind training."""

    def rest(self) -> None:
        """Keep nothing loaded: no plan is wanted soon."""

    def begin(self, graph: StepGraph, network: Network) -> Planning:
        """Begin to make plans to try beside the baseline.

        Raises
        ------
        HocketError
            Where there are none.
        """


class NetworkMeasurement(Protocol):
    """The measurement of the network that a training has, in which all ranks take part."""

    def pieces(self) -> Generator[None, None, MeasuredNetwork]:
        """Measure it, in pieces, and a size by which it is to be known again."""

    def again(self, point: MeasuredPoint) -> float:
        """Seconds of a transfer of that size, now."""


class PlanSelection:
    """The way of ``training`` to its plan; ``choice`` shows how far it is.

    ``measurement``: of the network, where none was given. ``given_plan``: one that holds as soon as the model
    is known; None: the planner's, after steps under the baseline: the first one without a trial, or, where
    they are on trial, whichever is the fastest of all, or was in an earlier run, in ``memory``.
    """

    def __init__(
        self,
        training: AllReduceTraining,
        choice: Choice,
        planner: Planner,
        measurement: NetworkMeasurement,
        control: GlooGroup,
        memory: ChoiceMemory,
        *,
        given_plan: Plan | None,
    ) -> None:
        self._training, self._choice, self._planner = training, choice, planner
        self._measurement, self._control, self._given_plan = measurement, control, given_plan
        self._memory = memory
        self._notes: InputNotes | None = None
        self._baseline = TrialPlan(choice.plan, None)

    def run(self) -> Generator[None, None, None]:
        """Bring a plan into force; resumed before each step."""
        try:
            yield from self._run()
        finally:
            self._planner.rest()
            self._end_notes()

    def _run(self) -> Generator[None, None, None]:
        choice, training = self._choice, self._training
        check_same_gradient_type(training.gradient_dtype, self._control)
        if self._given_plan is None:
            self._note_inputs()
        most = _LEARNING_STEPS + (
            0 if self._given_plan is not None else PROFILED_STEPS + self._steps_of_trials
        )
        choice.enter(
            "learning", f": {_LEARNING_STEPS} steps show which module reads which parameter first", most
        )
        for _ in range(_LEARNING_STEPS):
            yield
        _end_learning(training, self._control)
        choice.clips = agree_on_norms(training, self._control)
        if self._given_plan is None:
            yield from self._recall_or_choose()
            yield from self._choose_again()
            return
        if training.compiled_step is not None and self._given_plan.compute_order is not None:
            yield from profiled(training, choice, self._control)
        alone = self._given_plan is choice.plan
        enforce(training, choice, self._of_first_rank([self._given_plan])[0])
        choice.settle("one rank alone sends nothing" if alone else "it was given, and no other was tried")

    def _recall_or_choose(self) -> Generator[None, None, None]:
        """Go on with the plan of an earlier run, if it is still ahead; else choose one, and keep that."""
        choice, kept = self._choice, None
        if self._notes is not None:
            choice.inputs = gather_values(self._notes.inputs(), self._control, StepInputs)
            kept = self._memory.recall()
        if kept is not None:
            check = still_holds(self._training, choice, kept, self._measurement.again, self._control)
            if (yield from check):
                self._end_notes()
                self._planner.rest()
                return
        if self._control.rank == 0:
            # Beside it the steps to come would be profiled longer than they are.
            self._planner.wait_until_prepared(_LOADING_S)
        if (yield from self._choose()) and self._planner.on_trial:
            self._memory.keep()

    def _choose_again(self) -> Generator[None, None, None]:
        """Choose a plan again, where plans are on trial, when settled steps come to take another time."""
        choice, rest = self._choice, 0
        while self._planner.on_trial:
            ratio = yield from steps_until_drift(rest, self._training.recorder, self._control)
            rest = REST_STEPS
            choice.unsettle(f"steps take {ratio:.2f} times what they did")
            enforce(self._training, choice, self._baseline)
            if not choice.network_given:
                choice.network = None
            self._note_inputs()
            if (yield from self._choose()):
                self._memory.keep()

    def _choose(self) -> Generator[None, None, bool]:
        """Profile the step, measure the network, and bring the planner's plan into force, or the fastest.

        Returns whether there was a choice, which is worth keeping.
        """
        choice = self._choice
        pieces = None if choice.network_given else self._measurement.pieces()
        baseline_s = yield from profiled(self._training, choice, self._control, pieces, self._steps_of_trials)
        choice.profiled_s = {choice.plan.policy: baseline_s}
        if self._notes is not None:
            choice.inputs = gather_values(self._notes.inputs(), self._control, StepInputs)
            self._end_notes()
        tried, failure = yield from self._plan()
        if failure:
            choice.settle(f"no other could be made: {failure}")
            return False
        if not tried:
            choice.settle(f"no other plan was 2% faster in simulation{_by_given_network(choice)}")
        elif self._planner.on_trial:
            trial_plans = [TrialPlan(choice.plan, None), *tried]
            trials = Trials(self._training, choice, trial_plans, baseline_s, self._control)
            choice.settle((yield from trials.run()))
        else:
            enforce(self._training, choice, tried[0])
            choice.settle(f"policy '{tried[0].plan.policy}' was asked for, and no other was tried")
        return True

    def _plan(self) -> Generator[None, None, tuple[list[TrialPlan], str]]:
        """Rank 0's plans, and why there are none where planning failed; steps go on where they are on trial.

        A policy that was asked for is waited for: its plan holds from a step on that no clock decides.
        """
        choice, on_trial = self._choice, self._planner.on_trial
        meanwhile = f"; steps go on under '{choice.plan.policy}' until then" if on_trial else ""
        choice.enter(
            "planning", f": plans are made for the step and the network{meanwhile}", self._steps_of_trials
        )
        graph, network = choice.graph, choice.network
        begin = None
        if self._control.rank == 0 and graph is not None and network is not None:
            begin = functools.partial(self._planner.begin, graph, network)
        plans, failure = yield from made_plans(begin, self._control, train_on=on_trial)
        if failure and self._control.rank == 0:
            logger.warning("%s; plan '%s' stays", failure, choice.plan.policy)
        return self._of_first_rank(
            [msgspec.structs.replace(plan, workers=choice.ranks) for plan in plans]
        ), failure

    @property
    def _steps_of_trials(self) -> int:
        """The most steps that trials of plans may take."""
        return MOST_STEPS if self._planner.on_trial else 0

    def _note_inputs(self) -> None:
        """Note what the model is called with, where a choice may be kept: it holds for such steps."""
        if self._planner.on_trial:
            training = self._training
            self._notes = InputNotes(training.model, lambda: training.steps)

    def _end_notes(self) -> None:
        if self._notes is not None:
            self._notes.end()
            self._notes = None

    def _of_first_rank(self, plans: Sequence[Plan]) -> list[TrialPlan]:
        """Rank 0's ``plans``, with the order in which each completes gradients."""
        graph = self._choice.graph
        mine = [TrialPlan(plan, None if graph is None else _gradient_order(graph, plan)) for plan in plans]
        return broadcast_value(mine, self._control, list[TrialPlan])


def _by_given_network(choice: Choice) -> str:
    """A clause on a network that was given and is far off what was timed: what was simulated is of it."""
    if not choice.network_grade:
        return ""
    return (
        f", which went by the network that was given, {choice.network_grade}; leave it out, and the network"
        " is measured here"
    )


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
