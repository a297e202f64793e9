"""Trials of plans on made-up machines, by the rule that is used and by one that takes 80 to 140 steps.

``python -m tests.naive.trials`` prints how often and by how much each errs, as docs/design/runtime.md has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

import numpy as np
import numpy.typing as npt

from hocket.runtime.training.trial_race import STEPS_PER_TURN, WORTH, Race

Floats = npt.NDArray[np.float64]
Rule = Callable[[Sequence[float], Floats], tuple[int, int]]

BEFORE, MOST_STEPS = 6, 54
PROFILED = 4
WRONG = 0.021  # a plan that is slower than the best by more than this was the wrong one
DEVIATIONS = {"half a percent": 0.005, "1%": 0.01, "2%": 0.02, "5%": 0.05, "10%": 0.1, "20%": 0.2}
NOISES = (*DEVIATIONS, "spikes", "bursts", "drift")
GAINS = {
    "none gains": (1.0, 1.0, 1.0, 1.0),
    "3%": (1.0, 0.99, 0.97, 1.01),
    "10%": (1.0, 0.9, 0.95, 0.93),
    "30%": (1.0, 0.77, 0.85, 0.81),
    "all are slower": (1.0, 1.03, 1.04, 1.05),
    "three are 3x slower": (1.0, 3.0, 3.0, 3.0),
    "10%, one 3x slower": (1.0, 3.0, 0.9, 0.95),
    "3% alone": (1.0, 0.97),
    "10% alone": (1.0, 0.9),
    "30% alone": (1.0, 0.77),
    "3% slower alone": (1.0, 1.03),
}
SHOWN = ("none gains", "all are slower", "3%", "10%", "30%", "three are 3x slower", "30% alone")


def noise(kind: str, seed: int, count: int = 400) -> Floats:
    """The factors by which successive steps take longer than they would undisturbed."""
    draws = np.random.default_rng(seed)
    factors = np.exp(draws.normal(0.0, DEVIATIONS.get(kind, 0.02), count))
    if kind == "spikes":  # one step in ten takes three times as long
        factors *= np.where(draws.random(count) < 0.1, 3.0, 1.0)
    elif kind == "bursts":  # of other work: for eight steps in 23 each takes 1.5 times as long
        busy = False
        for k in range(count):
            busy = bool(draws.random() > 1 / 8 if busy else draws.random() < 1 / 15)
            factors[k] *= 1.5 if busy else 1.0
    elif kind == "drift":  # up and down by a quarter in 80 steps
        factors *= np.exp(0.25 * np.sin(2 * np.pi * (np.arange(count) / 80 + draws.random())))
    return factors


def race(step_s: Sequence[float], factors: Floats) -> tuple[int, int]:
    """The plan that is chosen by the rule in use, and after how many steps."""
    runs_on = [k > 0 for k in range(len(step_s))]
    done = BEFORE
    profiled = list(factors[done - PROFILED : done] * step_s[0])
    tried = Race(runs_on, [profiled[:2], profiled[2:]], MOST_STEPS)
    turns, running, seconds = tried.turns(), 0, None
    while True:
        try:
            k = next(turns) if seconds is None else turns.send(seconds)
        except StopIteration:
            assert done == BEFORE + MOST_STEPS - tried.steps_left
            return tried.winner, done
        done += k != running
        running = k
        seconds = list(step_s[k] * factors[done : done + STEPS_PER_TURN])
        done += STEPS_PER_TURN


def heats_and_final(step_s: Sequence[float], factors: Floats) -> tuple[int, int]:
    """The same by two rounds of all in turns of four steps, and a final that is won by three turns."""
    seconds: list[list[float]] = [[] for _ in step_s]
    done = 8

    def turn(k: int) -> None:
        nonlocal done
        seconds[k].append(step_s[k] * float(np.mean(factors[done + 1 : done + 5])))
        done += 5

    every = range(len(step_s))
    for order in (every, every[::-1]):
        for k in order:
            turn(k)
    second = min(every[1:], key=lambda k: min(seconds[k]))
    lead = 0
    for number in range(9):
        for k in (0, second) if number % 2 == 0 else (second, 0):
            turn(k)
        lead += 1 if seconds[second][-1] < WORTH * seconds[0][-1] else -1
        if abs(lead) == 3:
            break
    return (second if lead > 0 else 0), done


def errors(rule: Rule, kind: str, step_s: Sequence[float], runs: int) -> tuple[float, float, list[int]]:
    """How often the wrong plan is chosen, how much slower than the best the chosen one is, and the steps."""
    chosen, steps = zip(*(rule(step_s, noise(kind, seed)) for seed in range(runs)), strict=True)
    slower = [step_s[k] / min(step_s) - 1 for k in chosen]
    return mean(each > WRONG for each in slower), mean(slower), list(steps)


def main() -> None:
    print(f"| noise of a step | {' | '.join(SHOWN)} |")
    print("|---" * (len(SHOWN) + 1) + "|")
    for kind in NOISES:
        print(f"| {kind} | {' | '.join(_cell(kind, GAINS[name]) for name in SHOWN)} |")


def _cell(kind: str, step_s: Sequence[float]) -> str:
    told = []
    for rule in (race, heats_and_final):
        wrong, slower, steps = errors(rule, kind, step_s, 400)
        told.append(f"{wrong:.0%} ({slower:.1%}), {mean(steps):.0f}")
    return "; ".join(told)


if __name__ == "__main__":
    main()
