"""``explain()`` and timelines of sharded training: what ran beside what, and what a step waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, median

from hocket.graph import Plan
from hocket.graph.plan import batch_name, planned_for_others, transfers_text
from hocket.graph.timeline import Kind, Lane, MemoryPoint, Span
from hocket.runtime.sharding.computing_pieces import pieces_of
from hocket.runtime.sharding.shard_choice import ShardChoice
from hocket.runtime.sharding.shard_events import ShardEvents, StepEvents
from hocket.runtime.sharding.sharded_model import ShardedModel
from hocket.runtime.training.explain import MeasuredTimeline
from hocket.text import counted

_GATHERS = (
    "on processors Hocket starts the all-gathers of torch's sharding (torch's own block the step), and each"
    " is waited for when its unit computes"
)
_SUMS = (
    "reduce-scatters run on beside the backward pass, two at a time, and end with it, or at once where"
    " gradients accumulate, have hooks or are averaged over replicas; they send half of what gloo's own do,"
    " and add up in its order"
)
_GLOOS = "reduce-scatters are gloo's own, and block the backward pass: this gloo adds up in another order"
_OTHER_STEP = 1.5  # times the time of a step for which a plan was made, which is for another step then
_ON_GPU = (
    "on a GPU all-gathers and reduce-scatters are torch's own, on streams; nobody has run this on one yet"
)


def explanation(sharded: ShardedModel, choice: ShardChoice) -> str:
    """The report, a line for each thing to know."""
    plan = choice.plan
    lines = [f"plan '{plan.policy}', {choice.phase}: {transfers_text(plan)}"]
    if choice.settled:
        lines.append(f"'{plan.policy}' stays: {choice.why}")
    if choice.next_plan is not None:
        following = choice.next_plan
        lines.append(
            f"the next run begins with '{following.policy}' ({transfers_text(following)}): units cannot be"
            " changed once a model is sharded"
        )
    if remark := planned_for_others(plan, choice.ranks):
        lines.append(remark)
    lines += choice.remarks
    lines += [_GATHERS, _SUMS if sharded.sums_here else _GLOOS] if sharded.beside else [_ON_GPU]
    lines += _limits(sharded.events, choice.planned_compute_s)
    return "\n".join(lines)


def _limits(events: ShardEvents, planned_compute_s: float | None) -> list[str]:
    steps = [step for step in events.last if step.cuts]
    if not steps:
        return ["no whole step recorded yet"]
    step_s = mean(step.end_s - step.begin_s for step in steps)
    gathers_s, reduces_s = (
        mean(sum(w.end_s - w.begin_s for w in step.waits if w.kind == kind) for step in steps)
        for kind in ("gather", "reduce")
    )
    network_s = mean(_busy_s(step) for step in steps)
    compute_s = median(sum(piece.seconds for piece in pieces_of(step)) for step in steps)
    lines = [
        f"a step: {step_s * 1e3:.1f} ms (mean of the last {counted(len(steps), 'step')} on this rank);"
        f" computing, with code between steps, {compute_s * 1e3:.1f} ms, waiting for all-gathers"
        f" {gathers_s * 1e3:.1f} ms, for reduce-scatters {reduces_s * 1e3:.1f} ms, transfers under way"
        f" {network_s * 1e3:.1f} ms"
    ]
    if planned_compute_s and not 1 / _OTHER_STEP < compute_s / planned_compute_s < _OTHER_STEP:
        lines.append(
            f"the plan was made for a step that computes {planned_compute_s * 1e3:.3g} ms:"
            " HOCKET_FORGET=1 plans anew, as for another batch"
        )
    return lines


def _busy_s(step: StepEvents) -> float:
    """Seconds in which a transfer of ``step`` is under way."""
    total, reached = 0.0, step.begin_s
    for transfer in sorted(step.transfers, key=lambda each: each.begin_s):
        end_s = transfer.begin_s if transfer.end_s is None else transfer.end_s
        total += max(0.0, end_s - max(transfer.begin_s, reached))
        reached = max(reached, end_s)
    return total


def measured_timeline(events: ShardEvents, plan: Plan, title: str) -> MeasuredTimeline:
    """The recorded steps, from the begin of the first of them."""
    steps = events.last
    lanes = tuple(
        Lane(process="this rank", name=name) for name in ("compute", "all-gathers", "reduce-scatters")
    )
    if not steps:
        return MeasuredTimeline(title=title, lanes=lanes, spans=())
    names = [batch_name(unit) for unit in plan.units]
    zero_s = steps[0].begin_s
    spans = [
        Span(lane, name, kind, start_s - zero_s, end_s - zero_s)
        for step in steps
        for lane, name, kind, start_s, end_s in (*_computing(step, names), *_transfers(step, names))
    ]
    return MeasuredTimeline(
        title=title,
        lanes=lanes,
        spans=tuple(sorted(spans, key=lambda s: s.start_s)),
        memory=tuple(MemoryPoint(at_s - zero_s, held) for step in steps for at_s, held in step.held),
    )


_Row = tuple[int, str, Kind, float, float]


def _transfers(step: StepEvents, names: Sequence[str]) -> Iterator[_Row]:
    for each in step.transfers:
        lane, kind = (1, "pull") if each.kind == "gather" else (2, "reduce")
        if each.end_s is not None:
            yield lane, names[each.unit], kind, each.begin_s, each.end_s  # type: ignore[misc]


def _computing(step: StepEvents, names: Sequence[str]) -> Iterator[_Row]:
    """Pieces of computing between two moments, and waits, one after the other."""
    for wait in step.waits:
        name = "reduce-scatters" if wait.unit is None else names[wait.unit]
        yield 0, f"wait {name}", "wait", wait.begin_s, wait.end_s
    for piece in pieces_of(step):
        for start_s, end_s in piece.busy:
            yield 0, piece.shown(names), piece.phase, start_s, end_s
