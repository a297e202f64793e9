"""The check of a choice that was kept: is the network the same, and is the plan no slower than DDP's?"""

from __future__ import annotations

from collections.abc import Callable, Generator
from statistics import mean

from hocket.network.file import MeasuredPoint
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.kept_choice import KeptChoice
from hocket.runtime.training.plan_trials import Choice, TrialPlan, enforce, timed_steps
from hocket.runtime.training.trial_race import STEPS_PER_TURN
from hocket.runtime.transfers.gloo_group import GlooGroup

_SAME_NETWORK = 1.25  # times the time of then; a network that is as much faster is another one, too
_SAME_STEP = 1.5
_LOSES = 1.02  # times the baseline's time
_SLOW = 1.10  # times the baseline's turn beside it: a plan that takes longer in its first has no other
_TRIES = 2


def still_holds(
    training: AllReduceTraining,
    choice: Choice,
    kept: KeptChoice,
    measure_again: Callable[[MeasuredPoint], float],
    control: GlooGroup,
) -> Generator[None, None, bool]:
    """Have the plan of ``kept`` for some steps, by turns with the baseline, and settle on it if it holds.

    Returns whether it does. The baseline is in force before, and where it does not. ``measure_again``:
    seconds of a transfer of such a size on the network, now.
    """
    if kept.point is not None and not choice.network_given:
        training.finish_transfers()
        then_s = kept.point.seconds
        measured = [measure_again(kept.point) for _ in range(_TRIES)]
        now_s = min(measured, key=lambda seconds: _ratio(seconds, then_s))
        if _ratio(now_s, then_s) > _SAME_NETWORK:
            choice.report(
                f"the plan of {kept.chosen} is not taken: {kept.point.size_bytes} bytes take"
                f" {now_s * 1e3:.3g} ms on the network, and took {then_s * 1e3:.3g}"
            )
            return False
        choice.network = kept.network
    baseline = choice.plan
    same = kept.plan.reductions == baseline.reductions
    name = baseline.policy if same else kept.plan.policy
    turns: dict[str, list[list[float]]] = {baseline.policy: [], name: []}
    theirs = TrialPlan(baseline, None)
    ours = theirs if same else TrialPlan(kept.plan, kept.gradients)
    for trial_plan in (theirs, theirs) if same else (ours, theirs, ours):
        choice.enter(f"trying '{trial_plan.plan.policy}'", f": of '{name}' and '{baseline.policy}', kept")
        if trial_plan.plan is not choice.plan:
            enforce(training, choice, trial_plan)
            yield
        turns[trial_plan.plan.policy].append((yield from timed_steps(STEPS_PER_TURN, control)))
        if not same and all(turns.values()) and min(turns[name][0]) > _SLOW * min(turns[baseline.policy][0]):
            break
    least = {policy: min(map(min, timed)) for policy, timed in turns.items()}
    share, baseline_s = least[name] / least[baseline.policy], least[baseline.policy]
    if _ratio(baseline_s, step_s := kept.step_s.get(baseline.policy, baseline_s)) > _SAME_STEP:
        why = f"'{baseline.policy}' took {step_s * 1e3:.3g} ms a step, and takes {baseline_s * 1e3:.3g}"
    elif share > _LOSES:
        why = f"it takes {share * 100:.1f}% of the time of '{baseline.policy}'"
    else:
        choice.trials = {policy: [mean(turn) for turn in timed] for policy, timed in turns.items()}
        choice.point = kept.point
        again = f", and took {share * 100:.1f}% of the time of '{baseline.policy}' in turns of 2 steps again"
        choice.settle(f"it was chosen on {kept.chosen}{'' if same else again}")
        return True
    choice.report(f"the plan of {kept.chosen} is not taken: {why}")
    choice.network = choice.network if choice.network_given else None
    enforce(training, choice, theirs)
    return False


def _ratio(a: float, b: float) -> float:
    """The larger one over the smaller one."""
    return max(a, b) / max(min(a, b), 1e-12)
