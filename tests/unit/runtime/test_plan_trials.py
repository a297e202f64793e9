"""Which of the plans that are tried stays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from hocket.graph import Plan, Reduction
from hocket.runtime.training import plan_trials
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.plan_trials import Choice, TrialPlan, Trials
from hocket.runtime.transfers.gloo_group import GlooGroup

STEPS_A_TURN = 5  # one is not timed


def plan_of(name: str) -> Plan:
    """A plan; where its name ends in "+" its transfers run on into the next forward pass."""
    return Plan(
        policy=name,
        model="test",
        architecture="allreduce",
        reductions=(Reduction(parameters=("w",), window="forward" if name.endswith("+") else "backward"),),
        compute_order=None,
    )


class Clock:
    """Steps that take as long as their plan does; a plan's turns may be disturbed, one by one."""

    def __init__(self, step_s: dict[str, float], disturbed_s: dict[str, list[float]]) -> None:
        self.now_s = 0.0
        self._steps = dict.fromkeys(step_s, 0)
        self._step_s, self._disturbed_s = step_s, disturbed_s

    def step(self, name: str) -> None:
        turn = self._steps[name] // STEPS_A_TURN
        self._steps[name] += 1
        extra_s = self._disturbed_s.get(name, [])
        self.now_s += self._step_s[name] + (extra_s[turn] if turn < len(extra_s) else 0.0)


def tried(
    monkeypatch: pytest.MonkeyPatch, step_s: dict[str, float], disturbed_s: dict[str, list[float]]
) -> tuple[Choice, int]:
    """What is chosen of plans of such steps, and after how many of them."""
    clock = Clock(step_s, disturbed_s)
    monkeypatch.setattr(plan_trials.time, "perf_counter", lambda: clock.now_s)
    monkeypatch.setattr(plan_trials, "max_over_ranks", lambda values, _: values)
    plans = [plan_of(name) for name in step_s]
    training = SimpleNamespace(
        enforce=lambda _: None,
        compiled_step=None,
        sparse_parameters=frozenset(),
        parameters={"w": torch.nn.Parameter(torch.zeros(3))},
    )
    choice = Choice(plan=plans[0])
    steps = 0
    scheduled = [TrialPlan(plan, None) for plan in plans]
    run = Trials(cast(AllReduceTraining, training), choice, scheduled, cast(GlooGroup, cast(Any, None))).run()
    while True:
        try:
            next(run)
        except StopIteration as end:
            choice.settle(end.value)
            return choice, steps
        clock.step(choice.plan.policy)
        steps += 1


def test_the_two_fastest_of_the_heats_have_a_final(monkeypatch: pytest.MonkeyPatch) -> None:
    choice, steps = tried(monkeypatch, {"ddp": 1.0, "a": 0.9, "b": 0.8, "c": 1.2}, {})
    assert choice.plan.policy == "b"
    assert {name: len(seconds) for name, seconds in choice.trials.items()} == {
        "ddp": 2,
        "a": 5,
        "b": 5,
        "c": 2,
    }
    assert choice.trials["a"] == pytest.approx([0.9] * 5)
    assert steps == (4 * 2 + 2 * 3) * STEPS_A_TURN


def test_disturbed_turns_do_not_cost_the_fastest_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed_s = {"b": [5.0, 0.0, 5.0, 0.0, 0.0, 5.0]}
    choice, _ = tried(monkeypatch, {"ddp": 1.0, "a": 0.9, "b": 0.8}, disturbed_s)
    assert choice.plan.policy == "b"
    assert len(choice.trials["b"]) == 2 + 7  # two of seven turns lost: three ahead


def test_a_final_that_nobody_leads_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed_s = {"b": [0.0, 0.0, *([0.0, 5.0] * 10)]}
    choice, _ = tried(monkeypatch, {"ddp": 1.0, "b": 0.8}, disturbed_s)
    assert choice.plan.policy == "b"  # five of nine
    assert len(choice.trials["b"]) == 2 + 9


def test_of_equals_the_baseline_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    choice, _ = tried(monkeypatch, {"ddp": 1.0, "a": 1.0, "b": 1.0}, {})
    assert choice.plan.policy == "ddp"


@pytest.mark.parametrize(("step_s", "chosen"), [(0.99, "ddp"), (0.97, "a+")])
def test_running_on_has_to_be_worth_it(monkeypatch: pytest.MonkeyPatch, step_s: float, chosen: str) -> None:
    choice, _ = tried(monkeypatch, {"ddp": 1.0, "a+": step_s}, {})
    assert choice.plan.policy == chosen


def test_a_plan_that_does_not_run_on_is_in_every_final(monkeypatch: pytest.MonkeyPatch) -> None:
    choice, _ = tried(monkeypatch, {"ddp": 1.0, "ddp 1 MB": 0.9, "a+": 0.7, "b+": 0.8}, {})
    assert choice.plan.policy == "a+"
    finalists = [name for name, seconds in choice.trials.items() if len(seconds) == 5]
    assert finalists == ["ddp 1 MB", "a+"]


def test_the_rule_is_told_with_its_numbers_where_the_fastest_turn_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choice, _ = tried(monkeypatch, {"ddp": 1.0, "a+": 0.99}, {})
    assert choice.plan.policy == "ddp"
    assert min(choice.trials["a+"]) < min(choice.trials["ddp"])
    assert choice.why == (
        "of the two that were fastest in 2 rounds of all plans, 'a+' took less than 98% of the time of 'ddp'"
        " in 0 of 3 turns of 4 steps (median of these ratios 99.0%); this had to hold in most turns, as its"
        " transfers may run on into the next forward pass"
    )


def test_the_rule_counts_the_turns_of_the_final_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    disturbed_s = {"b": [5.0, 0.0, 5.0, 0.0, 0.0, 5.0]}
    choice, _ = tried(monkeypatch, {"ddp": 1.0, "a": 0.9, "b": 0.8}, disturbed_s)
    assert (
        "'b' took less than 100% of the time of 'a' in 5 of 7 turns of 4 steps (median of these ratios 88.9%)"
        in choice.why
    )


def test_every_trial_says_where_it_is_and_how_many_steps_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Choice, "enter", lambda self, phase, more="": told.append(phase + more))
    _, steps = tried(monkeypatch, {"ddp": 1.0, "a": 0.9}, {})
    assert told[0] == "trying 'ddp': plan 1 of 2, round 1 of 2, at most 110 steps left"
    assert told[1] == "trying 'a': plan 2 of 2, round 1 of 2, at most 105 steps left"
    assert told[2].startswith("trying 'a': plan 2 of 2, round 2 of 2")
    assert told[4].startswith(
        "trying 'ddp': plan 1 of 2, final, turn 1, of 3 at least and 9 at most, at most 90 steps left"
    )
    assert len(told) * STEPS_A_TURN == steps


@pytest.mark.parametrize(
    ("undisturbed_s", "disturbed_s", "said"),
    [
        ({"ddp": 1.0, "a": 0.8}, [], "'a' was about 1.25x as fast as 'ddp', and won 3 of 3 turns"),
        ({"ddp": 1.0, "a": 1.25}, [], "'ddp' was about 1.25x as fast as 'a', and won 3 of 3 turns"),
        (
            {"ddp": 1.0, "a": 0.8},
            [0.0, 0.0, *([0.0, 5.0] * 10)],
            "'a' was about 1.25x as fast as 'ddp', and won 5 of 9 turns: which of the two is faster may be"
            " chance",
        ),
    ],
)
def test_how_sure_a_choice_is_stands_beside_it(
    monkeypatch: pytest.MonkeyPatch, undisturbed_s: dict[str, float], disturbed_s: list[float], said: str
) -> None:
    choice, _ = tried(monkeypatch, undisturbed_s, {"a": disturbed_s} if disturbed_s else {})
    assert choice.sureness == said
