"""The rule by which a plan is chosen, on made-up machines, beside one that takes twice as many steps."""

from __future__ import annotations

from functools import cache
from statistics import mean

import pytest

from hocket.runtime.training.trial_race import Race
from tests.naive.trials import GAINS, NOISES, Rule, errors, heats_and_final, race

RUNS = 40
QUIET = ("half a percent", "1%")


def chosen(step_s: list[float], most: int = 54, profiled: tuple[float, ...] = (1.0, 1.0)) -> Race:
    """A race of plans whose steps are all alike."""
    tried = Race([False] * len(step_s), [profiled], most)
    turns = tried.turns()
    seconds = None
    try:
        while True:
            k = next(turns) if seconds is None else turns.send(seconds)
            seconds = [step_s[k], step_s[k]]
    except StopIteration:
        return tried


def turns_of(tried: Race) -> list[int]:
    return [len(turns) for turns in tried.seconds]


def test_the_worst_goes_first_and_the_best_stays() -> None:
    tried = chosen([1.0, 0.9, 0.8, 1.05])
    assert (tried.winner, tried.sure) == (2, True)
    assert turns_of(tried) == [2, 2, 2, 1]
    assert tried.lead(1)[0] == pytest.approx(0.8 / 0.9)
    assert tried.rival() == 1


def test_what_a_lead_is_off_by_counts_the_steps_by_which_it_was_decided() -> None:
    """Steps of the baseline that went before were disturbed; those of the loser tell that turns are not."""
    tried = chosen([1.0, 0.9], profiled=(1.0, 1.6, 1.0, 1.6))
    share, error = tried.lead(0)
    assert (tried.winner, tried.sure) == (1, True)
    assert share < 1 - error


def test_a_plan_that_is_a_tenth_slower_in_its_first_turn_has_no_other() -> None:
    tried = chosen([1.0, 3.0, 1.11, 3.0])
    assert (tried.winner, tried.sure) == (0, True)
    assert turns_of(tried) == [2, 1, 1, 1]


def test_a_turn_counts_as_slow_beside_the_slowest_of_the_baselines() -> None:
    """A machine that was busy for a while was so for whoever had the turn."""
    assert turns_of(chosen([1.0, 1.11], profiled=(1.2, 1.2)))[1] > 1


def test_of_plans_that_are_alike_the_baseline_stays() -> None:
    tried = chosen([1.0, 1.0, 1.0])
    assert (tried.winner, tried.sure) == (0, True)
    assert turns_of(tried) == [2, 2, 2]


def test_what_runs_on_has_to_be_worth_it() -> None:
    for share, winner in ((0.99, 0), (0.97, 1)):
        tried = Race([False, True], [(1.0, 1.0)], 54)
        turns = tried.turns()
        k = next(turns)
        try:
            while True:
                k = turns.send([(1.0, share)[k]] * 2)
        except StopIteration:
            assert tried.winner == winner


def test_no_more_steps_are_taken_than_there_are() -> None:
    for most in range(12, 55):
        tried = chosen([1.0, 0.98, 0.99, 1.0], most)
        assert 0 <= tried.steps_left < most


@cache
def found(rule: Rule, kind: str) -> dict[str, tuple[float, float, list[int]]]:
    """Of each set of plans: how often the wrong one was chosen, by how much it was slower, and the steps."""
    return {name: errors(rule, kind, step_s, RUNS) for name, step_s in GAINS.items()}


@pytest.mark.parametrize("kind", QUIET)
def test_a_quiet_machine_decides_within_thirty_steps(kind: str) -> None:
    for name, (_, slower, steps) in found(race, kind).items():
        assert mean(steps) <= 31, name
        assert slower < 0.005, name


@pytest.mark.parametrize("kind", NOISES)
def test_it_chooses_no_worse_than_by_more_than_twice_as_many_steps(kind: str) -> None:
    ours, theirs = (list(found(rule, kind).values()) for rule in (race, heats_and_final))
    assert max(step for _, _, steps in ours for step in steps) <= 60
    # Of all gains together: of a single one they differ by chance in so many runs.
    assert mean(slower for _, slower, _ in ours) <= mean(slower for _, slower, _ in theirs) + 0.003
    # Where noise is small, or a fifth of a step, the other takes its time to tell such plans apart.
    more = 0.05 if kind in (*QUIET, "2%", "20%", "bursts") else 0.0
    assert mean(wrong for wrong, _, _ in ours) <= mean(wrong for wrong, _, _ in theirs) + more
    for (_, slower, _), (_, other, _), name in zip(ours, theirs, GAINS, strict=True):
        assert slower <= other + 0.025, name
