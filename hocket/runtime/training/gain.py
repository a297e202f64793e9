"""The gain of a plan beside DDP's: how much there was to win, how much was won, and what holds the rest."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hocket.network import Network, reduction_s
from hocket.runtime.observe.barriers import Barriers
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.observe.step_rows import bytes_on_wire
from hocket.runtime.training.plan_trials import Choice

# Of a step: what is less is no gain that turns of some steps could show.
_LEAST = 1.02


def gain_line(recorder: SpanRecorder, choice: Choice, barriers: Barriers) -> str:
    """A line on the gain of the plan that stays, "" where neither it nor the best there could be is known.

    At best a step takes as long as computing or as one AllReduce of all gradients, whichever is longer; both
    are said of the same steps. Where it could be shorter, and most of the last steps met a barrier, the line
    names that.
    """
    turns = choice.trials or choice.profiled_s
    if not choice.settled or not turns:
        return ""
    baseline, baseline_turns = next(iter(turns.items()))
    won, noise = _won(baseline_turns, turns.get(choice.plan.policy, baseline_turns)), ""
    if choice.gain is not None:
        won, noise = choice.gain[0], f", give or take {choice.gain[1] * 100:.1f}%"
    had = "none" if choice.plan.policy == baseline else f"{won:.2f}x of '{baseline}'{noise}"
    network_s = _network_s(recorder, choice.network)
    if network_s is None or not choice.computing_s:
        return "" if had == "none" else f"gain: {had}"
    usual_s, compute_s = median(baseline_turns), median(choice.computing_s)
    most = max(usual_s / max(compute_s, network_s), won)
    needs = (
        f"computing takes {compute_s * 1e3:.1f} ms of a step, the network {network_s * 1e3:.1f} ms, and"
        f" '{baseline}' {usual_s * 1e3:.1f} ms"
    )
    if most < _LEAST:
        return f"gain: there is none to have: {needs}"
    rest = barriers.usual() if most > _LEAST * won else ""
    return f"gain: {had}, of at most about {most:.2f}x: {needs}" + (
        f"; the rest is held by: {rest}" if rest else ""
    )


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
