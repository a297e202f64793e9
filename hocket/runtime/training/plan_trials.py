"""Trials: several plans trained with in turn, so that the fastest one stays in force."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.network.file import MeasuredPoint
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.step_inputs import StepInputs
from hocket.runtime.training.trial_race import STEPS_PER_TURN, WORTH, Race
from hocket.runtime.transfers.gloo_group import GlooGroup, max_over_ranks
from hocket.text import counted

_WARM_STEPS = 1  # the first step of a plan still ends the last one's transfers
MOST_STEPS = 54
"""Steps of all trials, at most; 60 with those before, and fewer where steps are long."""
_MOST_LONG_STEPS = 34  # where a step takes longer than _LONG_S, as they do then for minutes
_LONG_S = 1.0


@dataclass(kw_only=True)
class Choice:
    """The plan that was chosen, and why.

    ``plan``: in force now; ``settled``: whether it stays; ``phase``: what the present steps are for, until it
    does; ``why``: the rule by which it was decided, with its numbers, and ``sureness``, of trials, how far to
    believe it; ``ranks``: how many train, ``one_machine``: whether all on one, by their launcher; ``graph``:
    and ``network``: what it was planned for, the latter measured unless ``network_given``;
    ``network_grade``: how far one that was given is off what was timed, where that is far; ``clips``: whether
    steps wait for norms of gradients, or scale them, as planning found; ``trials``:
    seconds a step of each plan that was tried, the slowest rank's in each turn, by its name, the baseline
    among them; the fastest have more turns. ``profiled_s``: of the steps under the baseline that were
    profiled, by its name; ``computing_s``: of this rank in the baseline's steps of whichever of the two came
    last; ``gain``: of trials that the baseline lost, how many times as fast the plan was, and the share of it
    that may be the noise of the steps; ``gradients``: in which order the plan completes gradients, if it has
    an order of operations; ``point``: a size by which a network that was measured is to be known again;
    ``inputs``: of the step, on each rank, where it was looked at; ``report``: called with a line a phase;
    ``entered_s``: when the phase began, by the process's clock; ``steps_left``: how many steps
    there may be from then on, without those that are trained while plans are made, None where that is not
    known.
    """

    plan: Plan
    settled: bool = False
    phase: str = "learning"
    why: str = ""
    sureness: str = ""
    ranks: int = 1
    graph: StepGraph | None = None
    network: Network | None = None
    network_given: bool = False
    network_grade: str = ""
    one_machine: bool = False
    clips: bool = False
    trials: dict[str, list[float]] = field(default_factory=dict)
    profiled_s: dict[str, list[float]] = field(default_factory=dict)
    computing_s: list[float] = field(default_factory=list)
    gain: tuple[float, float] | None = None
    gradients: Sequence[str] | None = None
    point: MeasuredPoint | None = None
    inputs: Sequence[StepInputs] = ()
    report: Callable[[str], None] = lambda line: None
    entered_s: float = 0.0
    steps_left: int | None = None

    def enter(self, phase: str, more: str = "", steps_left: int | None = None) -> None:
        """Begin ``phase``, of which a log says ``more``."""
        self.phase, self.entered_s, self.steps_left = phase, time.monotonic(), steps_left
        self.report(f"{phase}{more}")

    def unsettle(self, why: str) -> None:
        """Let the plan be chosen again, because of ``why``."""
        self.settled, self.sureness, self.trials, self.gain = False, "", {}, None
        self.report(f"plan '{self.plan.policy}' is looked at again: {why}")

    def settle(self, why: str) -> None:
        """Let the plan in force stay, because of ``why``."""
        self.settled, self.phase, self.why = True, "settled", why
        self.report(f"plan '{self.plan.policy}' stays: {why}")


@dataclass(frozen=True)
class TrialPlan:
    """A plan and, where it has an order of operations, in which order that completes gradients."""

    plan: Plan
    gradients: Sequence[str] | None

    @property
    def runs_on(self) -> bool:
        """Tell whether transfers of it may run on into the next forward pass."""
        return any(reduction.window == "forward" for reduction in self.plan.reductions)


def enforce(training: AllReduceTraining, choice: Choice, trial_plan: TrialPlan) -> None:
    """Bring a plan into force from the next step on."""
    if trial_plan.plan is choice.plan:
        return
    training.enforce(trial_plan.plan)
    choice.plan, choice.gradients = trial_plan.plan, trial_plan.gradients
    if training.compiled_step is not None:
        names = trial_plan.gradients
        training.planned_gradients = None if names is None else [training.parameters[name] for name in names]
        training.compiled_step.recompile()


class Trials:
    """Trials of ``trial_plans``, the baseline first, by the rule of :class:`Race`.

    ``baseline_s``: what steps under the baseline took before, on the slowest rank.
    """

    def __init__(
        self,
        training: AllReduceTraining,
        choice: Choice,
        trial_plans: Sequence[TrialPlan],
        baseline_s: Sequence[float],
        control: GlooGroup,
    ) -> None:
        self._training, self._choice, self._trial_plans, self._control = (
            training,
            choice,
            trial_plans,
            control,
        )
        turns = [baseline_s[k : k + STEPS_PER_TURN] for k in range(0, len(baseline_s), STEPS_PER_TURN)]
        most = _MOST_LONG_STEPS if baseline_s and median(baseline_s) > _LONG_S else MOST_STEPS
        self._race = Race([each.runs_on for each in trial_plans], turns, most)

    def run(self) -> Generator[None, None, str]:
        """Try them all, leave the one that stays in force, and return why; resumed before each step."""
        race = self._race
        turns = race.turns()
        self._choice.computing_s = []
        k = next(turns)
        yield  # transfers were finished before: a step that has to wait for the last one's comes first
        while True:
            name, left = self._name(k), race.steps_left + race.steps_of(k, self._in_force())
            where = f"plan {k + 1} of {len(self._trial_plans)}, turn {len(race.seconds[k]) + 1} of it"
            self._choice.enter(f"trying '{name}'", f": {where}, at most {left} steps left", left)
            seconds = yield from self._turn(k)
            try:
                k = turns.send(seconds)
            except StopIteration:
                break
        self._choice.trials = {
            each.plan.policy: [mean(turn) for turn in turns]
            for each, turns in zip(self._trial_plans, race.seconds, strict=True)
        }
        enforce(self._training, self._choice, self._trial_plans[race.winner])
        if race.winner != 0:
            share, error = race.lead(0)
            self._choice.gain = 1 / share, error
        self._choice.sureness = self._sureness()
        return self._rule()

    def _turn(self, k: int) -> Generator[None, None, list[float]]:
        """Train some steps by plan ``k`` and return the slowest rank's seconds of each that counts."""
        if k != self._in_force():
            enforce(self._training, self._choice, self._trial_plans[k])
            for _ in range(_WARM_STEPS):
                yield
        seconds = yield from timed_steps(STEPS_PER_TURN, self._training.recorder, self._control)
        if k == 0:
            self._choice.computing_s += self._training.recorder.computing_s(STEPS_PER_TURN)
        return seconds

    def _in_force(self) -> int:
        return next(k for k, each in enumerate(self._trial_plans) if each.plan is self._choice.plan)

    def _name(self, k: int) -> str:
        return self._trial_plans[k].plan.policy

    def _sureness(self) -> str:
        """The gain of the plan that stays over the one that came nearest; of the baseline only if by chance.

        And how far off it may be by the noise of the steps; whether it may be chance.
        """
        race = self._race
        winner, rival = race.winner, race.rival()
        if winner != 0 and rival == 0:
            return "" if race.sure else self._by_chance()
        share, error = race.lead(rival)
        said = (
            f"'{self._name(winner)}' was about {1 / share:.2f}x as fast as '{self._name(rival)}'"
            f" ({range_text(1 / share, error)})"
        )
        chance = not race.sure or abs(math.log(share)) <= error
        return f"{said}: which of these two is faster may be chance" if chance else said

    def _by_chance(self) -> str:
        winner, baseline = self._name(self._race.winner), self._name(0)
        return f"'{baseline}'; whether '{winner}' is faster than that may be chance"

    def _rule(self) -> str:
        """The rule by which it was decided, with its numbers."""
        race = self._race
        rival = race.rival()
        turns = len(race.seconds[rival])
        runs_on = self._trial_plans[race.winner].runs_on, self._trial_plans[rival].runs_on
        worth = f"; a plan whose transfers may run on has to take less than {WORTH * 100:g}% of another's"
        return (
            f"of {counted(len(self._trial_plans), 'plan')} in turns of {STEPS_PER_TURN} steps, the worst out"
            f" first, it took {race.lead(rival)[0] * 100:.1f}% of the time of '{self._name(rival)}' in"
            f" {counted(turns, 'turn')} beside each other{worth if runs_on[0] != runs_on[1] else ''}"
        )


def range_text(times: float, error: float) -> str:
    """Words on ``times`` as fast, whose logarithm may be off by ``error``."""
    return f"{times * math.exp(-error):.2f}x to {times * math.exp(error):.2f}x"


def timed_steps(count: int, recorder: SpanRecorder, control: GlooGroup) -> Generator[None, None, list[float]]:
    """Train ``count`` steps and return what each took on the slowest rank; resumed before each step."""
    begins = [recorder.now()]
    for _ in range(count):
        yield
        begins.append(recorder.now())
    return max_over_ranks(recorder.seconds_between(begins), control)
