"""What was recorded, as people read it: a timeline of all ranks, and a few lines on what limits the step."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec
import torch.distributed as dist

from hocket.document import write_json
from hocket.graph.timeline import Lane, Span, Timeline
from hocket.interop import timeline_document
from hocket.runtime.recorder import Record, Recorder
from hocket.runtime.selection import Choice

TIMELINE_STEPS = 8
_ROUNDS = 5


class RankRecord(msgspec.Struct, frozen=True):
    """One rank's last steps on rank 0's clock."""

    rank: int
    spans: list[Record]


def clock_offset_s(control: dist.ProcessGroup) -> float:
    """What this rank's clock is ahead of rank 0's, to within the time that a message takes."""
    offsets = []
    for _ in range(_ROUNDS):
        sent = [time.perf_counter()]
        dist.broadcast_object_list(sent, group=control, group_src=0)
        offsets.append(time.perf_counter() - sent[0])
    return min(offsets) if dist.get_rank(control) else 0.0


def rank_record(recorder: Recorder, rank: int, offset_s: float) -> bytes:
    """The answer that a watch gives for its rank."""
    _, _, spans = recorder.last_steps(TIMELINE_STEPS)
    shifted = [(kind, name, start - offset_s, end - offset_s) for kind, name, start, end in spans]
    return msgspec.msgpack.encode(RankRecord(rank, shifted))


class MeasuredTimeline(Timeline, frozen=True, kw_only=True):
    """The last steps of all ranks, measured."""

    def save(self, path: str | Path) -> None:
        """Write it as ``hocket.timeline/1``, which Perfetto opens and ``hocket compare`` reads."""
        write_json(timeline_document(self), path)


def timeline_of(answers: Iterable[bytes], title: str) -> MeasuredTimeline:
    """The timeline of the ranks that answered: a processor each, and lanes for transfers that overlap."""
    records = [msgspec.msgpack.decode(answer, type=RankRecord) for answer in answers]
    origin = min((span[2] for record in records for span in record.spans), default=0.0)
    lanes: list[Lane] = []
    spans: list[Span] = []
    for record in records:
        process = f"worker {record.rank}"
        compute, networks = len(lanes), list[int]()
        lanes.append(Lane(process=process, name="compute"))
        free_s: list[float] = []
        for kind, name, start, end in sorted(record.spans, key=lambda span: span[2]):
            lane = compute
            if kind == "reduce":
                k = next((k for k, free in enumerate(free_s) if free <= start), len(free_s))
                if k == len(free_s):
                    free_s.append(0.0)
                    networks.append(len(lanes))
                    lanes.append(Lane(process=process, name=f"network {k + 1}"))
                free_s[k] = end
                lane = networks[k]
            spans.append(Span(lane, name, kind, start - origin, end - origin))
    spans.sort(key=lambda span: span.start_s)
    return MeasuredTimeline(title=title, lanes=tuple(lanes), spans=tuple(spans))


def explanation(recorder: Recorder, choice: Choice, barriers: Sequence[str], steps: int) -> str:
    """What is in force and why, where the last steps' time went, and what forces a barrier."""
    plan = choice.plan
    sliced = sum(r.slice is not None for r in plan.reductions)
    forward = sum(r.window == "forward" for r in plan.reductions)
    lines = [
        f"plan '{plan.policy}', {'in force' if choice.settled else 'for now'}:"
        f" {len(plan.reductions)} reductions, {sliced} of them slices,"
        f" {forward} may run on into the next forward pass; {steps} steps trained"
    ]
    if choice.trials:
        tried = sorted((median(seconds), name) for name, seconds in choice.trials.items())
        lines.append("tried: " + ", ".join(f"'{name}' {seconds * 1e3:.1f} ms" for seconds, name in tried))
    lines += _limits(recorder)
    lines += [f"barrier: {barrier}" for barrier in barriers]
    return "\n".join(lines)


def _limits(recorder: Recorder) -> list[str]:
    count, first, spans = recorder.last_steps(TIMELINE_STEPS)
    if count == 0:
        return ["no whole step recorded under this plan yet"]
    step_s = (list(recorder.begins)[-1] - first) / count
    busy = {
        kind: sum(end - start for k, _, start, end in spans if k == kind) / count
        for kind in ("forward", "backward", "update", "wait")
    }
    compute_s = busy["forward"] + busy["backward"] + busy["update"]
    network_s = _union([(start, end) for kind, _, start, end in spans if kind == "reduce"]) / count
    lines = [
        f"a step: {step_s * 1e3:.1f} ms; computing {compute_s * 1e3:.1f} ms"
        f" (updates {busy['update'] * 1e3:.1f} ms), waiting {busy['wait'] * 1e3:.1f} ms,"
        f" transfers under way {network_s * 1e3:.1f} ms"
    ]
    waits: dict[str, float] = {}
    for kind, name, start, end in spans:
        if kind == "wait":
            waits[name] = waits.get(name, 0.0) + (end - start) / count
    longest = sorted(waits.items(), key=lambda item: -item[1])[:3]
    if compute_s >= 0.95 * step_s:
        lines.append("limit: computing, which hardly ever waits")
    elif network_s >= 0.95 * step_s:
        lines.append("limit: the network, which is hardly ever idle")
    else:
        lines.append("limit: transfers that are ready last and read first, and other ranks that are later")
    if longest and busy["wait"] > 0.01 * step_s:
        told = ", ".join(f"{name.removeprefix('wait ')} {seconds * 1e3:.1f} ms" for name, seconds in longest)
        lines.append(f"longest waits, a step: {told}")
    return lines


def _union(intervals: Sequence[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for start, end in intervals:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
