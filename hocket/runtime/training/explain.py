"""``explain()`` and timelines: a recording as people read it, of all ranks, and what limits the step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from hocket.graph import Plan
from hocket.graph.plan import planned_for_others, transfers_text
from hocket.graph.timeline import Lane, Span, Timeline
from hocket.interop import save_timeline
from hocket.network import Network, reduction_s
from hocket.runtime.observe.barriers import Barriers
from hocket.runtime.observe.recorder import BETWEEN_STEPS, Record, SpanRecorder, piece_name
from hocket.runtime.observe.step_rows import bytes_on_wire
from hocket.runtime.training.gain import gain_line
from hocket.runtime.training.plan_trials import MOST_STEPS, Choice
from hocket.runtime.training.trial_race import STEPS_PER_TURN
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_value
from hocket.text import counted

TIMELINE_STEPS = 8
_ROUNDS = 5
_TRAVELLING = {"reduce": "network", "pull": "pull", "push": "push"}
# A share of the step that is too small to be its limit: steps of one plan differ by nearly as much.
_LITTLE = 0.1
# Beside computing, transfers are slower than when they were measured, in a lab by up to a quarter. One that
# takes even longer is held up by something else.
_HELD_UP = 1.3
# Times by which steps may differ from the plan's turns, which other programs disturbed more, or less.
_CHANGED = 1.5


class RankRecord(msgspec.Struct, frozen=True):
    """One rank's last steps on rank 0's clock."""

    rank: int
    spans: list[Record]


def clock_offset_s(control: GlooGroup, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that this rank's clock is ahead of rank 0's, to within the time that a message takes."""
    offsets = []
    for _ in range(_ROUNDS):
        sent = broadcast_value(clock(), control, float)
        offsets.append(clock() - sent)
    return min(offsets) if control.rank else 0.0


def rank_record(recorder: SpanRecorder, rank: int, offset_s: float) -> bytes:
    """The answer that a watch gives for its rank."""
    _, _, spans = recorder.last_steps(TIMELINE_STEPS)
    shifted = [(kind, name, start - offset_s, end - offset_s) for kind, name, start, end in spans]
    return msgspec.msgpack.encode(RankRecord(rank, shifted))


class MeasuredTimeline(Timeline, frozen=True, kw_only=True):
    """The last steps of training, measured: a :class:`hocket.Timeline` that also has ``save``.

    Attributes
    ----------
    title, lanes, spans, memory
        As in a :class:`hocket.Timeline`; memory of sharded training alone.

    Examples
    --------
    >>> from hocket.runtime.training.explain import MeasuredTimeline
    >>> MeasuredTimeline(title="nothing yet", lanes=(), spans=()).save("measured.json")
    """

    def save(self, path: str | Path) -> None:
        """Write it as ``hocket.timeline/1``, which Perfetto opens and ``hocket compare`` reads.

        Raises
        ------
        HocketError
            When the file cannot be written.
        """
        save_timeline(self, path)


def timeline_of(answers: Iterable[bytes], title: str) -> MeasuredTimeline:
    """The timeline of the ranks that answered: a processor each, and lanes for transfers that overlap."""
    records = [msgspec.msgpack.decode(answer, type=RankRecord) for answer in answers]
    first_s = min((span[2] for record in records for span in record.spans), default=0.0)
    lanes: list[Lane] = []
    spans: list[Span] = []
    for record in records:
        process = f"worker {record.rank}"
        compute = len(lanes)
        lanes.append(Lane(process=process, name="compute"))
        # Of each kind of transfer, when each lane is free again, and which lane that is.
        free: dict[str, list[tuple[float, int]]] = {}
        for kind, name, start, end in sorted(record.spans, key=lambda span: span[2]):
            lane = compute
            if kind in _TRAVELLING:
                lanes_of = free.setdefault(kind, [])
                k = next((k for k, (free_s, _) in enumerate(lanes_of) if free_s <= start), len(lanes_of))
                if k == len(lanes_of):
                    lanes_of.append((0.0, len(lanes)))
                    lanes.append(Lane(process=process, name=f"{_TRAVELLING[kind]} {k + 1}"))
                lane = lanes_of[k][1]
                lanes_of[k] = end, lane
            spans.append(Span(lane, name, kind, start - first_s, end - first_s))
    spans.sort(key=lambda span: span.start_s)
    return MeasuredTimeline(title=title, lanes=tuple(lanes), spans=tuple(spans))


def explanation(recorder: SpanRecorder, choice: Choice, barriers: Barriers) -> str:
    """The plan in force and why, where the last steps' time went, and what made steps wait."""
    plan = choice.plan
    lines = [
        f"plan '{plan.policy}', {'in force' if choice.settled else f'for now ({choice.phase})'}:"
        f" {transfers_text(plan)}{_held_clause(choice, barriers)}; {counted(barriers.steps, 'step')} trained"
    ]
    if choice.phase == "planning":
        since_s = time.monotonic() - choice.entered_s
        lines.append(f"plans have been in the making for {since_s:.1f} s, beside steps under '{plan.policy}'")
    if any(r.window == "forward" for r in plan.reductions):
        lines.append(
            "updates may follow optimizer.step(): a read of a weight or a gradient has its update first,"
            " except by an address taken earlier; call model.hocket.flush() then"
        )
    if recorder.gradient_dtype is not None:
        lines.append(f"gradients of longer types travel as {recorder.gradient_dtype}")
    lines += _on_halves(choice)
    if choice.trials:
        tried = sorted(choice.trials.items(), key=lambda item: min(item[1]))
        each = ", ".join(
            f"'{name}' {min(seconds) * 1e3:.1f} ms (median {median(seconds) * 1e3:.1f} of"
            f" {counted(len(seconds), 'turn')})"
            for name, seconds in tried
        )
        lines.append(
            f"tried: {each} a step, in the fastest of each one's turns of {STEPS_PER_TURN} steps, on the"
            " slowest rank"
        )
    if choice.why:
        lines.append(f"'{plan.policy}' stays: {choice.why}")
    if remark := planned_for_others(plan, choice.ranks):
        lines.append(remark)
    if choice.one_machine:
        lines.append(
            f"all {choice.ranks} ranks are on one machine, where networks are hardly waited for: there is"
            " little to gain here from another plan than DDP's; between machines there may be more"
        )
    lines += _limits(recorder, choice)
    if gain := gain_line(recorder, choice, barriers):
        lines.append(gain)
    lines += [f"barrier: {line}" for line in barriers.lines()]
    if choice.sureness:
        lines.append(f"nearest: {choice.sureness}")
    if not choice.settled:
        lines.append(f"no plan has settled yet: {_steps_to_settle(choice)}")
    return "\n".join(lines)


def _on_halves(choice: Choice) -> list[str]:
    """A line where steps clip, or a plan is for such steps: what waits for what."""
    if any(r.halves for r in choice.plan.reductions):
        clips = "the step clips by norm; its plan" if choice.clips else "the plan"
        return [
            f"{clips} sums gradients up in halves: their norm, and the step behind it, wait for the first"
            " halves alone; the others may run on into the next forward pass"
        ]
    if not choice.clips:
        return []
    later = "" if choice.settled else "; plans made for it may sum up in halves, which waits for less"
    return [
        f"the step clips by norm; its plan sums gradients up whole, and the norm waits for all of them{later}"
    ]


def _held_clause(choice: Choice, barriers: Barriers) -> str:
    """A clause on transfers that might have run on, and on none of which clipping or a barrier lets do so."""
    running_on = [name for r in choice.plan.reductions if r.window == "forward" for name in r.parameters]
    if not running_on:
        return ""
    if choice.clips and not any(r.halves for r in choice.plan.reductions):
        return ", but none does in a step that clips, as its norm waits for all (below)"
    if not barriers.each_step_held(running_on):
        return ""
    return ", but none did in the last steps, which each met a barrier (below)"


def _steps_to_settle(choice: Choice) -> str:
    """The number of steps until a plan stays, at most."""
    if choice.steps_left is None:
        return "that of an earlier run is tried, which takes about ten steps where it holds"
    most = f"it takes at most {counted(choice.steps_left, 'more step')}"
    if choice.phase.startswith("trying") or choice.steps_left < MOST_STEPS:
        return most
    # Trials are all to come, and so may be the making of plans, beside which steps go on.
    return f"{most}, and those that are trained while plans are made, which takes seconds"


def _limits(recorder: SpanRecorder, choice: Choice) -> list[str]:
    count, first, spans = recorder.last_steps(TIMELINE_STEPS)
    if count == 0:
        return ["no whole step recorded under this plan yet"]
    last = list(recorder.begins)[-1]
    step_s = (last - first) / count
    busy = {
        kind: sum(end - start for k, _, start, end in spans if k == kind) / count
        for kind in ("forward", "backward", "update", "wait")
    }
    outside = piece_name(BETWEEN_STEPS)
    between_s = sum(end - start for _, name, start, end in spans if name == outside) / count
    compute_s = busy["forward"] + busy["backward"] + busy["update"] - between_s
    transfers = [(max(start, first), min(end, last)) for kind, _, start, end in spans if kind == "reduce"]
    network_s = _union(transfers) / count
    needed_s = _needed_s(choice.plan, recorder, choice.network)
    lines = [
        f"a step: {step_s * 1e3:.1f} ms ({mean_of(recorder, count)} on this rank);"
        f" computing {compute_s * 1e3:.1f} ms (updates {busy['update'] * 1e3:.1f} ms),"
        f" code between steps {between_s * 1e3:.1f} ms,"
        f" waiting {busy['wait'] * 1e3:.1f} ms, transfers under way {network_s * 1e3:.1f} ms"
        f" ({_on_network(choice, needed_s)})"
    ]
    lines += _changed_since_trials(choice, step_s)
    if compute_s + between_s >= (1 - _LITTLE) * step_s:
        lines.append(
            f"what limits a step: {_own_work(step_s, compute_s, between_s)}; this rank hardly ever waits"
        )
    else:
        waits = f"this rank waits for {busy['wait'] / step_s:.0%} of a step"
        lines.append(f"what limits a step: {_others_work(step_s, network_s, needed_s)}; {waits}")
    waited: dict[str, float] = {}
    for kind, name, start, end in spans:
        if kind == "wait":
            waited[name] = waited.get(name, 0.0) + (end - start) / count
    longest = sorted(waited.items(), key=lambda item: -item[1])[:3]
    if longest and busy["wait"] > 0.01 * step_s:
        told = ", ".join(f"{name.removeprefix('wait ')} {seconds * 1e3:.1f} ms" for name, seconds in longest)
        lines.append(f"longest waits, a step: {told}")
    return lines


def _changed_since_trials(choice: Choice, step_s: float) -> list[str]:
    """A line where steps of the plan in force now take much longer, or shorter, than in its turns."""
    if not (choice.settled and (turns := choice.trials.get(choice.plan.policy))):
        return []
    ratio = step_s / median(turns)
    if 1 / _CHANGED < ratio < _CHANGED:
        return []
    busier = "is busier now" if ratio > 1 else "was busier then"
    return [
        f"a step takes {ratio:.2g} times what it did in the turns by which the plan was chosen: the machine"
        f" or the network {busier}, and the choice may be of that; train again where nothing else runs"
    ]


def mean_of(recorder: SpanRecorder, count: int) -> str:
    """The steps that times of the last ``count`` ones are of, in words."""
    first, last = recorder.last_numbers(count)
    return f"step {last} alone" if first == last else f"mean of steps {first} to {last}"


def _on_network(choice: Choice, needed_s: float | None) -> str:
    """The time that transfers need by themselves, on which network, or why that is not known."""
    if needed_s is not None:
        source = "given" if choice.network_given else "measured"
        return f"{needed_s * 1e3:.1f} ms expected of the network as {source}"
    if choice.network is not None:
        return "the network that was given has no measured all-reduce"
    if choice.ranks == 1:
        return "one rank alone sends nothing"
    return "no network was measured, as the plan was given" if choice.settled else "no network measured yet"


def _own_work(step_s: float, compute_s: float, between_s: float) -> str:
    """The work of a processor that does not wait, in words, the longer part first."""
    parts = [
        (compute_s, "computing"),
        (between_s, "code between steps (data loading, validation and the like)"),
    ]
    return ", then ".join(name for seconds, name in sorted(parts, reverse=True) if seconds > _LITTLE * step_s)


def _others_work(step_s: float, network_s: float, needed_s: float | None) -> str:
    """Whom a processor waits for: transfers begin when this rank sends, and go on until the last one has."""
    if needed_s and network_s > _HELD_UP * needed_s:
        return (
            "other ranks that are later, or a network that is slower than measured:"
            f" transfers take {network_s / needed_s:.1f} times what it needs for them"
        )
    always = network_s >= (1 - _LITTLE) * step_s
    limit = (
        "the network, which is hardly ever idle"
        if always
        else "neither computing nor the network alone, as gradients that are ready last are needed first"
    )
    return limit if needed_s is not None else f"{limit}, or other ranks that are later"


def _needed_s(plan: Plan, recorder: SpanRecorder, network: Network | None) -> float | None:
    """Seconds of a step's transfers on ``network``, one after the other; None where that was not measured."""
    if network is None or network.reduction is None:
        return None
    total_s = 0.0
    for reduction in plan.reductions:
        gradients = [recorder.parameters[name] for name in reduction.parameters]
        size = float(sum(bytes_on_wire(p, recorder.gradient_dtype) for p in gradients))
        if reduction.slice is not None:
            first, end, count = reduction.slice
            size *= (end - first) / count
        # Here each chunk is an AllReduce of its own.
        total_s += reduction.chunks * reduction_s(network, size / reduction.chunks)
    return total_s


def _union(intervals: Sequence[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for start, end in intervals:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
