"""Answers in a sentence: results, rankings and comparisons, each from its rows alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hocket.graph import Plan
from hocket.graph.plan import has_halves
from hocket.graph.result import LEVEL, WAITING, ResultRow, is_level
from hocket.planner.allreduce_baselines import DDP_BUCKET_BYTES
from hocket.planner.named_planners import SEARCH
from hocket.report.best_result import over_bound
from hocket.report.compared_rows import (
    LITTLE,
    any_made_up,
    apart_alike,
    best_buckets_row,
    best_row,
    gains,
    usual_row,
)
from hocket.report.comparison import Comparison
from hocket.text import counted, duration_text, listed, percent_text, rho_text, time_unit

_DEFAULT = f"{DDP_BUCKET_BYTES >> 20} MiB"
_NEARLY = 0.75  # of the best gain, from which on one is nearly as much
_LEAST = ", and no order of as many transfers takes less"
_NAMED = 3  # of several policies in a row


def on_workers(row: ResultRow, bandwidth: str, *, clip: bool = False) -> str:
    """The circumstances of ``row``: ``on 4 workers and 1 server at 1 Gbit/s``, ``clipped by norm`` or not."""
    servers = f" and {counted(row.servers, 'server')}" if row.architecture == "ps" else ""
    clipped = "clipped by norm " if clip else ""
    return f"{clipped}on {counted(row.workers, 'worker')}{servers} at {bandwidth}"


def clipping_verdict(rows: Sequence[ResultRow], unclipped: ResultRow | None) -> str:
    """The step clipped under the usual policy, beside the unclipped one.

    The latter under the best policy for that; fully sharded, where only the usual one is known, under that.
    ``rows``: of the clipped step, the usual policy's among them; ``unclipped``: None where that is not known.
    """
    usual = usual_row(rows)
    assert usual is not None, "the usual policy is among the rows"
    if unclipped is None:
        clipped = f"clipped under {usual.policy} a step takes {_step(usual, None)}"
        return f"{clipped}; how long it takes unclipped the profile does not say: it clips itself"
    clipped, plain = _step(usual, unclipped), _step(unclipped, usual)
    if unclipped.architecture == "fsdp":
        return f"under {usual.policy} a step takes {plain} unclipped, {clipped} clipped"
    searched = ", none searched for" if any(row.policy == SEARCH for row in rows) else ""
    how = f"{unclipped.title}, whole reductions{searched}"
    return f"unclipped a step takes at best {plain} ({how}), clipped under {usual.policy} {clipped}"


def halves_verdict(rows: Sequence[ResultRow], plans: Mapping[str, Plan]) -> str:
    """The best of ``rows`` of a clipped step whose plan sums up in halves, and the best whose plan does not.

    ``plans``: by policy. Empty where none goes in halves.
    """
    halved = [row for row in rows if has_halves(plans[row.policy])]
    if not halved:
        return ""
    best = min(halved, key=lambda row: row.iteration_s)
    whole = min((row for row in rows if row not in halved), key=lambda row: row.iteration_s)
    times = f"with reductions in halves {_step(best, whole)} at best ({best.title})"
    searched = ", none searched for" if any(row.policy == SEARCH for row in halved) else ""
    return f"{times}, with whole ones alone {_step(whole, best)} ({whole.title}{searched})"


def result_verdict(row: ResultRow, usual: ResultRow | None, where: str) -> str:
    """A step's time under one policy, beside the usual one's and the least possible.

    ``where``: as :func:`on_workers` says it.
    """
    name = f"{row.policy} ({row.status})" if row.status else row.title
    compared = [] if usual is None or usual.policy == row.policy else [_against(row, usual)]
    return f"{name}: {_step(row, usual)} a step {where}" + _clauses_text(compared) + _least(row, usual)


def ranking_verdict(
    rows: Sequence[ResultRow],
    where: str,
    alike_s: Mapping[str, float] | None = None,
    alike_bound_s: float = 0.0,
) -> str:
    """The fastest of ``rows``, which are of one setup, or that none beats the usual policy.

    DDP's best bucket size, where it is among ``rows``, is told beside its default one. Policies whose steps
    take as long as the fastest one's, to 0.05%, are named with it. ``alike_s``, ``alike_bound_s``: as
    :class:`hocket.tuner.Tuning` has them, the times where no step is slower than another; where uneven steps
    make up a gain, all figures but the last are of those.
    """
    best, usual = best_row(rows), usual_row(rows)
    buckets = best_buckets_row(rows)
    level = [row for row in rows if is_level(row.iteration_s, best.iteration_s)]
    if usual in level:
        beats = _beaten_by_none(best, usual.policy) if len(rows) > 1 else usual.policy
        return f"{beats}: {_step(usual, None)} a step {where}{_least(usual, usual)}"
    told = f"best of {len(rows)} policies: {_named(level)}, " if len(rows) > 1 else f"{best.title}: "
    if buckets in level and len(rows) > 1:
        of_buckets = (
            f"DDP with {_bucket(buckets)} buckets (bucket_cap_mb={(buckets.bucket_bytes or 0) >> 20})"
        )
        proven = _is_proven(best)
        told = (
            f"nothing to gain over {of_buckets}: "
            if proven
            else f"best of {len(rows)} policies: {of_buckets}, "
        )
    others = [] if usual is None else [(usual, _usual_name(usual, buckets))]
    if buckets is not None and buckets not in level and not _is_default(buckets, usual):
        others.append((buckets, f"ddp's best bucket ({_bucket(buckets)})"))
    compared = _gains(best, others, alike_s or {})
    if alike_s and any_made_up(best, [other for other, _ in others], alike_s):
        alike = _alike_step(best, usual, alike_s, alike_bound_s)
        return f"{told}{alike[0]} a step {where} if all steps were alike, {compared}{alike[1]}"
    uneven = _if_alike(best, [row for row, _ in others], alike_s or {})
    drawn = " with steps as uneven as the profile's" if uneven else ""
    said = f"{told}{_step(best, usual)} a step {where}{drawn}"
    if len(others) > 1:
        return f"{said}. That is {compared}{_least(best, usual)}"
    return said + _clauses_text([compared]) + _least(best, usual)


def ranking_remarks(rows: Sequence[ResultRow], alike_s: Mapping[str, float] | None = None) -> list[str]:
    """Remarks on a ranking: network over computing, a gain made of uneven steps, DDP's bucket size.

    The last where it gains nearly as much; ``alike_s`` as in :func:`ranking_verdict`.
    """
    best = best_row(rows)
    rho = rho_text(best.rho)
    remarks = [f"Rho {rho}: a step's transfers, by {best.policy}, take {rho} times as long as its computing"]
    buckets, usual = best_buckets_row(rows), usual_row(rows)
    others = [row for row in (usual, buckets) if row is not None]
    remarks += _if_alike(best, others, alike_s or {})
    if any_made_up(best, others, alike_s or {}):
        remarks.append(
            "Much of the table's gain comes of steps that differ, as a busy machine makes them: go by the"
            " gain if all steps were alike"
        )
    if buckets is None or buckets is best or _is_default(buckets, usual) or not gains(rows):
        return remarks
    if buckets.iteration_s <= (1 + LITTLE) * best.iteration_s and (
        usual is None
        or usual.iteration_s - buckets.iteration_s >= _NEARLY * (usual.iteration_s - best.iteration_s)
    ):
        size = (buckets.bucket_bytes or 0) >> 20
        remarks.append(
            f"DistributedDataParallel(model, bucket_cap_mb={size}) gains nearly as much as the best plan"
        )
    return remarks


def best_buckets(rows: Sequence[ResultRow]) -> str:
    """The line of a script for where no plan gains much over DDP's own with its best bucket; else empty."""
    best, buckets = min(rows, key=lambda row: row.iteration_s), best_buckets_row(rows)
    if buckets is None or best.iteration_s < (1 - LITTLE) * buckets.iteration_s:
        return ""
    size = (buckets.bucket_bytes or 0) >> 20
    return f"DistributedDataParallel(model, bucket_cap_mb={size})  # in your script"


def comparison_verdict(comparison: Comparison) -> str:
    """The measured step beside the predicted one: how much of the difference is computing and waiting."""
    figures = {figure.name: figure for figure in comparison.figures}
    step = figures["step"]
    ours, theirs = step.predicted_s or 0.0, step.measured_s or 0.0
    unit = time_unit([ours, theirs])
    said = f"A measured step takes {duration_text(theirs, unit)}, "
    if is_level(ours, theirs) or not ours:
        return f"{said}as predicted" if ours else f"{said}where nothing was predicted"
    more = "more" if theirs > ours else "less"
    said += f"{percent_text(abs(theirs / ours - 1))} {more} than predicted ({duration_text(ours, unit)})"
    parts = [
        f"{duration_text(abs(apart_s))} {'more' if apart_s > 0 else 'less'} {name}"
        for name in ("computing", "waiting")
        if name in figures
        and abs(apart_s := (figures[name].measured_s or 0.0) - (figures[name].predicted_s or 0.0))
        > LEVEL * ours
    ]
    return f"{said}: {listed(parts)}" if parts else said


def _step(row: ResultRow, beside: ResultRow | None) -> str:
    """The step's time, in the unit of the longer of the two that are read together."""
    times_s = [row.iteration_s, *([] if beside is None else [beside.iteration_s])]
    return duration_text(row.iteration_s, time_unit(times_s))


def _beaten_by_none(best: ResultRow, name: str) -> str:
    """Words on the policy called ``name``, whose step none shortens: by the bound where it proves that."""
    return f"nothing to gain over {name}" if _is_proven(best) else f"no other policy beats {name}"


def _is_proven(best: ResultRow) -> bool:
    """Tell whether the bound proves that no order of as many transfers is faster."""
    above = over_bound(best)
    return above is not None and above <= LEVEL


def _named(level: Sequence[ResultRow]) -> str:
    """The policies of ``level``, the fastest ones, and whether a search from them found no better one."""
    names = [row.title for row in level if row.policy != SEARCH]
    if not names:
        return f"{SEARCH} (a plan found by changing theirs)"
    shown = names if len(names) <= _NAMED else [names[0], f"{len(names) - 1} others"]
    alike = f"{listed(shown)}{' alike' if len(shown) > 1 else ''}"
    return alike if len(names) == len(level) else f"{alike} (search found none better)"


def _usual_name(usual: ResultRow, buckets: ResultRow | None) -> str:
    if usual.policy != "ddp":
        return usual.policy
    is_best = buckets is not None and _is_default(buckets, usual)
    return f"ddp (buckets of {_DEFAULT}{', its best size' if is_best else ''})"


def _against(row: ResultRow, usual: ResultRow) -> str:
    """The step of ``row`` beside the usual policy's."""
    if is_level(row.iteration_s, usual.iteration_s) or not usual.iteration_s:
        return f"as long as {_usual_name(usual, None)}"
    return _gains(row, [(usual, _usual_name(usual, None))], {})


def _gains(row: ResultRow, others: Sequence[tuple[ResultRow, str]], alike_s: Mapping[str, float]) -> str:
    """The step of ``row`` beside those of ``others``, each with its name: all as drawn, or all as if alike.

    A gain that uneven steps make up is more likely the profile's machine than the order of transfers: then
    what is left if all steps were alike is told, and the table alone has the rest.
    """
    compared = [(other, name) for other, name in others if other.iteration_s]
    alike = [apart_alike(row, other, alike_s) for other, _ in compared]
    made_up = any_made_up(row, [other for other, _ in compared], alike_s)
    apart = alike if made_up else [row.iteration_s / other.iteration_s - 1 for other, _ in compared]
    return ", ".join(
        f"{_percents(share) if share else 'no less'} than {name}"
        for share, (_, name) in zip(apart, compared, strict=True)
        if share is not None
    )


def _alike_step(
    best: ResultRow, usual: ResultRow | None, alike_s: Mapping[str, float], bound_s: float
) -> tuple[str, str]:
    """The step of ``best`` if all were alike; and the least it can be then, and what it is as they differ."""
    step_s = alike_s[best.policy]
    unit = time_unit([best.iteration_s, *([] if usual is None else [usual.iteration_s])])
    least = ""
    if bound_s and is_level(step_s, bound_s):
        least = _LEAST
    elif bound_s:
        least = f"; no order of as many transfers takes less then than {duration_text(bound_s, unit)}"
        usual_s = None if usual is None else alike_s.get(usual.policy)
        if usual is not None and usual_s and not is_level(bound_s, usual_s):
            least += f", {_percents(bound_s / usual_s - 1)} than {usual.policy}"
    waits = percent_text(best.straggler_fraction)
    return duration_text(step_s, unit), (
        f"{least}. The profile's steps differ, and with them it takes"
        f" {duration_text(best.iteration_s, unit)}: the first worker to end a step waits for the last,"
        f" {waits} of a step on average"
    )


def _if_alike(best: ResultRow, others: Sequence[ResultRow], alike_s: Mapping[str, float]) -> list[str]:
    """A remark on what is left of a gain over ``others`` if all steps were alike; none where that is told."""
    if any_made_up(best, others, alike_s):
        return []
    said = [
        f"{_percents(alike)} than {other.title}"
        for other in others
        if not is_level(best.iteration_s, other.iteration_s)
        and (alike := apart_alike(best, other, alike_s)) is not None
    ]
    return [f"If all steps were alike: {listed(said)}"] if said else []


def _percents(apart: float) -> str:
    return f"{percent_text(abs(apart))} {'less' if apart < 0 else 'more'}"


def _is_default(buckets: ResultRow, usual: ResultRow | None) -> bool:
    """Tell whether DDP's default buckets are its best ones, or as good."""
    return usual is not None and is_level(buckets.iteration_s, usual.iteration_s)


def _bucket(row: ResultRow) -> str:
    return f"{(row.bucket_bytes or 0) >> 20} MiB"


def _least(row: ResultRow, usual: ResultRow | None) -> str:
    """A clause on the least that a step can take by the bound; "" without a bound.

    It stands beside the usual step unless workers wait for each other, which the bound leaves out: such a
    distance would be no gain of an order.
    """
    above = over_bound(row)
    if above is None:
        return ""
    if above <= LEVEL:
        return _LEAST
    unit = time_unit([row.iteration_s, *([] if usual is None else [usual.iteration_s])])
    least = duration_text(row.bound_s, unit)
    said = f". No order of as many transfers takes less than {least}"
    if row.straggler_fraction < WAITING:
        if usual is row:
            saved = percent_text(1 - row.bound_s / row.iteration_s)
            return f". The best possible order of as many transfers would save at most {saved} ({least})"
        if usual is not None and not is_level(row.bound_s, usual.iteration_s):
            said += f", {_percents(row.bound_s / usual.iteration_s - 1)} than {usual.policy}"
        return said
    return (
        f"{said}, even if no worker waited for another (the first to end a step waits for the last, here"
        f" {percent_text(row.straggler_fraction)} of a step on average)"
    )


def _clauses_text(clauses: Sequence[str]) -> str:
    return "".join(f", {clause}" for clause in clauses if clause)
