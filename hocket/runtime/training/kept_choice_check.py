"""The check of a choice that was kept: is the network the same, and is the plan no slower than DDP's?"""

from __future__ import annotations

from collections.abc import Callable, Generator
from statistics import mean, median

from hocket.network.file import MeasuredPoint
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.kept_choice import KeptChoice
from hocket.runtime.training.plan_trials import Choice, TrialPlan, enforce, timed_steps
from hocket.runtime.training.trial_race import STEPS_PER_TURN
from hocket.runtime.transfers.gloo_group import GlooGroup

_SAME_NETWORK = 1.25  # times the time of then; a network that is as much faster is another one, too
_SAME_STEP = 1.5
_LOSES = 0.02  # of the baseline's time, more than which the plan takes, and more than steps of a turn differ
_SLOW = 0.10  # the same, of a plan's first turn: it has no other then
_NOISES = 2.0  # times what steps of a turn differ by
_TRIES = 6  # of a measurement, as processors that are busy make one longer by more than another network would


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
        now_s = measure_again(kept.point)
        for _ in range(_TRIES - 1):
            if _ratio(now_s, then_s) <= _SAME_NETWORK:
                break
            now_s = min(now_s, measure_again(kept.point), key=lambda seconds: _ratio(seconds, then_s))
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
    choice.computing_s = []
    theirs = TrialPlan(baseline, None)
    ours = theirs if same else TrialPlan(kept.plan, kept.gradients)
    for number, trial_plan in enumerate((theirs, theirs) if same else (ours, theirs, ours)):
        choice.enter(f"trying '{trial_plan.plan.policy}'", f": of '{name}' and '{baseline.policy}', kept")
        if trial_plan.plan is not choice.plan:
            enforce(training, choice, trial_plan)
            yield
        elif number == 0:
            yield  # its transfers were finished, so a step that waits for the last one's comes first
        seconds = yield from timed_steps(STEPS_PER_TURN, training.recorder, control)
        turns[trial_plan.plan.policy].append(seconds)
        if trial_plan is theirs:
            choice.computing_s += training.recorder.computing_s(STEPS_PER_TURN)
        if all(turns.values()) and _excess(turns[name], turns[baseline.policy]) > _SLOW:
            break
    least = {policy: min(map(min, timed)) for policy, timed in turns.items()}
    share, baseline_s = least[name] / least[baseline.policy], least[baseline.policy]
    if _ratio(baseline_s, step_s := kept.step_s.get(baseline.policy, baseline_s)) > _SAME_STEP:
        why = f"'{baseline.policy}' took {step_s * 1e3:.3g} ms a step, and takes {baseline_s * 1e3:.3g}"
    elif _excess(turns[name], turns[baseline.policy]) > _LOSES:
        why = f"it takes {share * 100:.1f}% of the time of '{baseline.policy}'"
    else:
        choice.trials = {policy: [mean(turn) for turn in timed] for policy, timed in turns.items()}
        choice.point, choice.inputs = kept.point, kept.inputs
        # The gain has the figure, of the same turns.
        again = (
            "" if same else f", and it was not clearly slower in turns of 2 steps beside '{baseline.policy}'"
        )
        choice.settle(f"an earlier run chose it on {kept.chosen}{again}")
        return True
    choice.report(f"the plan of {kept.chosen} is not taken: {why}")
    choice.network = choice.network if choice.network_given else None
    enforce(training, choice, theirs)
    return False


def _excess(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """The share of their time that ours takes more, less what it may by the noise of the steps of one turn.

    A disturbance makes a step longer, never shorter, so the fastest steps count. The plan was ahead in more
    turns than these when it was chosen: on a busy machine these alone do not take that back.
    """
    noise = median(max(turn) / min(turn) - 1 for turn in (*ours, *theirs))
    more = min(map(min, ours)) / min(map(min, theirs)) - 1
    return more if more > _NOISES * noise else 0.0


def _ratio(a: float, b: float) -> float:
    """The larger one over the smaller one."""
    return max(a, b) / max(min(a, b), 1e-12)
