"""The gain of a plan beside DDP's: how much there was to win, how much was won, and what holds the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from hocket.network import Network, reduction_s
from hocket.runtime.observe.barriers import Barriers
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.observe.step_rows import bytes_on_wire
from hocket.runtime.training.plan_trials import Choice, range_text
from hocket.text import counted

# Of a step: what is less is no gain that turns of some steps could show.
_LEAST = 1.02
_OTHERS = 2  # times as long as one transfer of all gradients: what a step waits more is not for that
_LAST_STEPS = 8  # of a baseline that was not tried, but is in force


def gain_line(recorder: SpanRecorder, choice: Choice, barriers: Barriers) -> str:
    """A line on the gain of the plan that stays, "" where neither it nor the best there could be is known.

    At best a step takes as long as computing or as one AllReduce of all gradients, whichever is longer; both
    are said of the same steps: where no other plan was tried, of the last ones under the baseline, as the few
    that are profiled begin with nothing under way. Where it could be shorter, and most of the last steps met
    a barrier, the line names that.
    """
    turns, computing_s = choice.trials or choice.profiled_s, choice.computing_s
    if not choice.settled or not turns:
        return ""
    baseline, baseline_turns = next(iter(turns.items()))
    if not choice.trials and choice.plan.policy == baseline:
        count, first_s, _ = recorder.last_steps(_LAST_STEPS)
        if count:
            baseline_turns = [(list(recorder.begins)[-1] - first_s) / count]
            computing_s = recorder.computing_s(count)
    had, won = _had(choice, baseline, turns)
    network_s = _network_s(recorder, choice.network)
    if network_s is None or not computing_s:
        return "" if had == "none" else f"gain: {had}"
    usual_s, compute_s = median(baseline_turns), median(computing_s)
    most = max(usual_s / max(compute_s, network_s), won)
    needs = (
        f"a step of '{baseline}' takes {usual_s * 1e3:.1f} ms, its computing {compute_s * 1e3:.1f} ms,"
        f" the network {network_s * 1e3:.1f} ms in one transfer"
    )
    if usual_s - compute_s > _OTHERS * network_s:
        needs += "; it waits for more than that: other ranks are later, or the network slower than measured"
    if most < _LEAST:
        return f"gain: there is none to have: {needs}"
    rest = barriers.usual() if most > _LEAST * won else ""
    if had == "none":
        had = f"none, as '{baseline}' is in force; another plan could gain at most about {most:.2f}x"
    else:
        had += f", of at most about {most:.2f}x"
    return f"gain: {had}: {needs}" + (f"; the rest is held by: {rest}" if rest else "")


def _had(choice: Choice, baseline: str, turns: Mapping[str, Sequence[float]]) -> tuple[str, float]:
    """The gain of the plan in force over the baseline, in words with its range, and as a number."""
    if choice.plan.policy == baseline:
        return "none", 1.0
    if choice.plan.policy not in turns:
        return f"not known, as it had no turns beside '{baseline}'", 1.0
    won, noise = _won(turns[baseline], turns[choice.plan.policy]), ""
    if choice.gain is not None:
        won, error = choice.gain
        chance = ", so it may be chance" if round(won * math.exp(-error), 2) <= 1 else ""
        noise = f" ({range_text(won, error)} by {counted(len(turns[baseline]), 'turn')} of that{chance})"
    elif len(turns[baseline]) == 1:
        noise = " (by one turn of that)"
    return f"{won:.2f}x of '{baseline}'{noise}", won


def _won(theirs_s: Sequence[float], ours_s: Sequence[float]) -> float:
    """Times by which our turns are faster: in the median of pairs, by the fastest where one has one turn."""
    if min(len(theirs_s), len(ours_s)) < 2:
        return min(theirs_s) / min(ours_s)
    return median(theirs / ours for theirs, ours in zip(theirs_s, ours_s, strict=False))


def _network_s(recorder: SpanRecorder, network: Network | None) -> float | None:
    """Seconds of one AllReduce of all gradients; None where the network's were not measured."""
    if network is None or network.reduction is None:
        return None
    size = sum(bytes_on_wire(p, recorder.gradient_dtype) for p in recorder.parameters.values())
    return reduction_s(network, float(size))
