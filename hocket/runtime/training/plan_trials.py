"""Trials: several plans trained with in turn, so that the fastest one stays in force."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from statistics import median

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.transfers.gloo_group import GlooGroup, max_over_ranks
from hocket.runtime.transfers.plan_layout import lay_out
from hocket.text import counted

_ROUNDS = 2  # of all plans, a turn each
_LEAD = 3  # turns that one of the last two has to win more often than the other
_MOST_TURNS = 9  # of those two; odd, so that one of them has won more
_TURNS_OF_FINAL = f"of {_LEAD} at least and {_MOST_TURNS} at most"
_WORTH = 0.98  # of the time without: what running on into the next forward pass has to reach
STEPS_PER_TRIAL = 4
"""Of how many steps a turn's time is the mean."""
_WARM_STEPS = 1  # the first step of a plan still ends the last one's transfers
_STEPS_PER_TURN = _WARM_STEPS + STEPS_PER_TRIAL


@dataclass(kw_only=True)
class Choice:
    """The plan that was chosen, and why.

    ``plan``: in force now; ``settled``: whether it stays; ``phase``: what the present steps are for, until it
    does; ``why``: the rule by which it was decided, with its numbers, and ``sureness``, of trials, how far to
    believe it; ``ranks``: how many train; ``graph``:
    and ``network``: what it was planned for, the latter measured unless ``network_given``; ``trials``:
    seconds a step of each plan that was tried, the slowest rank's in each turn, by its name, the baseline
    among them; the fastest have more turns. ``report``: called with a line a phase.
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
    trials: dict[str, list[float]] = field(default_factory=dict)
    report: Callable[[str], None] = lambda line: None

    def enter(self, phase: str, more: str = "") -> None:
        """Begin ``phase``, of which a log says ``more``."""
        self.phase = phase
        self.report(f"{phase}{more}")

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
    training.enforce(lay_out(trial_plan.plan, training.parameters, training.sparse_parameters))
    choice.plan = trial_plan.plan
    if training.compiled_step is not None:
        names = trial_plan.gradients
        training.planned_gradients = None if names is None else [training.parameters[name] for name in names]
        training.compiled_step.recompile()


class Trials:
    """Trials of ``trial_plans``, the baseline first.

    Every plan has a turn in each round, then the two fastest have turns against each other until one is
    ahead, which stays. A disturbance makes a step longer, never shorter: in the rounds a plan is as fast
    as in its fastest turn. In the final two turns that follow each other are compared, so that what changes
    slowly disturbs both, and only who was faster counts, not by how much: one long step decides one turn
    alone.
    """

    def __init__(
        self,
        training: AllReduceTraining,
        choice: Choice,
        trial_plans: Sequence[TrialPlan],
        control: GlooGroup,
    ) -> None:
        self._training, self._choice, self._trial_plans, self._control = (
            training,
            choice,
            trial_plans,
            control,
        )
        self._seconds: list[list[float]] = [[] for _ in trial_plans]

    def run(self) -> Generator[None, None, str]:
        """Try them all, leave the one that stays in force, and return why; resumed before each step."""
        every = range(len(self._trial_plans))
        final_turns = 2 * _MOST_TURNS  # of both
        for done in range(_ROUNDS):
            left = (_ROUNDS - done) * len(every) + final_turns
            yield from self._turns(
                every if done % 2 == 0 else every[::-1], left, f"round {done + 1} of {_ROUNDS}"
            )
        first, second = self._finalists()
        asked = _WORTH if self._trial_plans[second].runs_on and not self._trial_plans[first].runs_on else 1.0
        lead = 0
        for turn in range(_MOST_TURNS):
            pair = (first, second) if turn % 2 == 0 else (second, first)
            yield from self._turns(pair, final_turns - 2 * turn, f"final, turn {turn + 1}, {_TURNS_OF_FINAL}")
            lead += 1 if self._seconds[second][-1] < self._seconds[first][-1] * asked else -1
            if abs(lead) == _LEAD:
                break
        named = zip(self._trial_plans, self._seconds, strict=True)
        self._choice.trials = {each.plan.policy: seconds for each, seconds in named}
        enforce(self._training, self._choice, self._trial_plans[second if lead > 0 else first])
        self._choice.sureness = self._sureness(first, second, lead)
        return self._rule(first, second, asked)

    def _turns(self, order: Sequence[int], turns_left: int, part: str) -> Generator[None, None, None]:
        """Train some steps by each plan of ``order`` and keep the slowest rank's seconds a step.

        ``turns_left``: how many turns there are to come at most, these included.
        """
        seconds = []
        for k, turn in zip(order, range(turns_left, 0, -1), strict=False):
            name = self._trial_plans[k].plan.policy
            where = f"plan {k + 1} of {len(self._trial_plans)}, {part}"
            steps_left = f"at most {turn * _STEPS_PER_TURN} steps left"
            self._choice.enter(f"trying '{name}'", f": {where}, {steps_left}")
            enforce(self._training, self._choice, self._trial_plans[k])
            for _ in range(_WARM_STEPS):
                yield
            started = time.perf_counter()
            for _ in range(STEPS_PER_TRIAL):
                yield
            seconds.append((time.perf_counter() - started) / STEPS_PER_TRIAL)
        for k, slowest_s in zip(order, max_over_ranks(seconds, self._control), strict=True):
            self._seconds[k].append(slowest_s)

    def _finalists(self) -> tuple[int, int]:
        """The two fastest, one of which does not run on into the next forward pass: the baseline does not.

        The second has to beat the first: it runs on where only one does, else it comes later.
        """
        tried = self._trial_plans
        fastest = sorted(range(len(tried)), key=lambda k: min(self._seconds[k]))
        ordinary = next(k for k in fastest if not tried[k].runs_on)
        other = fastest[1] if fastest[0] == ordinary else fastest[0]
        if tried[other].runs_on:
            return ordinary, other
        return min(ordinary, other), max(ordinary, other)

    def _ratios(self, first: int, second: int) -> list[float]:
        """The second finalist's time over the first one's, turn by turn of the final."""
        pairs = zip(self._seconds[first][_ROUNDS:], self._seconds[second][_ROUNDS:], strict=True)
        return [theirs_s / ours_s for ours_s, theirs_s in pairs]

    def _sureness(self, first: int, second: int, lead: int) -> str:
        """The gain of the plan that stays over the other finalist, and whether that may be chance."""
        stays, other = (second, first) if lead > 0 else (first, second)
        ratio, turns = median(self._ratios(stays, other)), len(self._ratios(stays, other))
        said = (
            f"'{self._trial_plans[stays].plan.policy}' was about {ratio:.2f}x as fast as"
            f" '{self._trial_plans[other].plan.policy}', and won {(turns + abs(lead)) // 2} of"
            f" {counted(turns, 'turn')}"
        )
        return said if abs(lead) == _LEAD else f"{said}: which of the two is faster may be chance"

    def _rule(self, first: int, second: int, needed_ratio: float) -> str:
        """The rule by which the final was decided, with its numbers."""
        ratios = self._ratios(first, second)
        won = sum(ratio < needed_ratio for ratio in ratios)
        ours, theirs = (self._trial_plans[k].plan.policy for k in (first, second))
        why = ", as its transfers may run on into the next forward pass" if needed_ratio < 1.0 else ""
        return (
            f"of the two that were fastest in {counted(_ROUNDS, 'round')} of all plans, '{theirs}' took less"
            f" than {needed_ratio * 100:g}% of the time of '{ours}' in {won} of"
            f" {counted(len(ratios), 'turn')} of {STEPS_PER_TRIAL} steps (median of these"
            f" ratios {median(ratios) * 100:.1f}%); this had to hold in most turns{why}"
        )
