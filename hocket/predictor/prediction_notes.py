"""Notes on a prediction's rows: against what their speed-ups are, and why figures are not what they seem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hocket.predictor.prediction import Prediction
from hocket.text import counted, listed, rate_text

_SPEEDED = 0.05  # of a speed-up, from which chance does not explain that it is no efficiency of equal workers
_FULL = 0.9  # of its time, or of what as many workers could do: below it there is room
_SHOWN = 0.005  # of a speed-up, which is printed with two decimals
_NAMED = 4  # of several numbers of workers in a row
_OLDER = "; asynchronous examples are on older weights, not the same progress as synchronous ones"


def base_note(rows: Sequence[Prediction], *, has_efficiency: bool) -> str | None:
    """A note on what speed-ups and efficiencies are against; None where they are not defined.

    ``has_efficiency``: whether efficiencies stand beside speed-ups.
    """
    if not rows or rows[0].alone_throughput is None:
        return None
    row = rows[0]
    updates = ""
    if row.architecture == "ps":
        updates = " or updates, which servers run (so compare them with all-reduce's by examples/s)"
    elif any((row.efficiency or 0.0) > 1.0 for row in rows):
        above = " (so they may be above 100%)" if has_efficiency else ""
        updates = f", which updates all parameters itself where these share updates out{above}"
    profiled = all(_is_of_profiled_speed(row) for row in rows)
    drawn = profiled and any(row.workers == 1 and not row.servers and _off_by_chance(row) for row in rows)
    against = "one worker alone" if profiled else "one worker alone of the profiled speed"
    also = (
        " (efficiency against what these workers would reach, each at its own)"
        if has_efficiency and not profiled
        else ""
    )
    what = "speed-up and efficiency are" if has_efficiency else "speed-up is"
    return (
        f"{what} against {against}, without a network{updates}{also}:"
        f" {rate_text(rows[0].alone_throughput)}"
        + (", its mean; the row of one worker draws its steps, so that it differs by chance" if drawn else "")
        + (_OLDER if any(row.mode == "async" and row.workers > 1 for row in rows) else "")
    )


def _is_of_profiled_speed(row: Prediction) -> bool:
    """True if workers are, on average, as fast as the one that was profiled."""
    if row.speedup is None or row.efficiency is None or row.efficiency == 1.0:  # held there
        return row.speedup is None or row.speedup < (1 + _SPEEDED) * row.workers
    return abs(row.speedup / (row.efficiency * row.workers) - 1) < _SPEEDED


def _off_by_chance(row: Prediction) -> bool:
    """True if one worker, who waits for nobody, is off its profile's mean by more than is rounded away."""
    return row.alone_throughput is not None and abs(row.throughput / row.alone_throughput - 1) >= _SHOWN


def lockstep_note(rows: Iterable[Prediction]) -> str | None:
    """A note that the figures are pessimistic, where workers never drift apart; None where they do."""
    if not any(row.lockstep for row in rows):
        return None
    return (
        "the profile has a single sampled step: workers that start together stay in lockstep and always "
        "share the network at the same moments, while real workers drift apart and take turns, so these "
        "figures are pessimistic; profile with more --steps, a derived device with --jitter 0.05, or, for "
        "asynchronous workers, give --spread, by which they begin apart"
    )


def together_note(rows: Iterable[Prediction]) -> str | None:
    """A note on asynchronous rows that are slow though nothing is busy; None where there are none."""
    slow = [row for row in rows if waits_together(row)]
    if not slow:
        return None
    least = min(slow, key=lambda row: row.bottleneck_utilization)
    most = min(least.throughput / least.bottleneck_utilization, least.throughput / (least.efficiency or 1.0))
    said = (
        f"{_machines(slow)}: workers wait though nothing is busy all the time ({least.busiest} with"
        f" {least.machines})"
    )
    if any(row.takes_turns for row in slow):
        said += ", as they pull together and then push together, and one way of a link waits for the other"
    if any(row.servers > 1 for row in slow):
        said += (
            ". With several servers a worker that is ahead shares its own link among them, and those behind"
            " catch up"
        )
    said += (
        f". With {least.machines}, {rate_text(least.throughput)} is shown and {rate_text(most)} is the most"
    )
    if least.alone_throughput is not None and most < least.alone_throughput:
        said += ", still less than one worker alone"
    if any(row.spread for row in slow):
        return f"{said}: they meet though they begin apart here"
    return f"{said}: real ones may drift apart; --spread, by which they begin apart, and --repeats show more"


def waits_together(row: Prediction) -> bool:
    """True if workers of an asynchronous row lose time that no resource's limit accounts for."""
    if row.mode != "async" or row.lockstep or row.workers == 1 or row.efficiency is None:
        return False
    return row.bottleneck_utilization < _FULL and row.efficiency < _FULL


def unsteady_note(rows: Iterable[Prediction]) -> str | None:
    """A note on rows whose runs had not settled when they ended; None where all had."""
    unsteady = [row for row in rows if row.steady is False]
    if not unsteady:
        return None
    apart = any(row.mode == "async" and not row.spread for row in unsteady)
    return (
        f"not steady: with {_machines(unsteady)}, the halves of a run differ by more than 5% after"
        f" {max(row.steps for row in unsteady)} steps; give more --max-steps"
        + (", or --spread for asynchronous workers that begin apart" if apart else "")
    )


def interpolated_note(rows: Sequence[Prediction]) -> str | None:
    """A note on rows that lie between simulated ones; None where all were simulated."""
    between = [row for row in rows if row.interpolated is not None]
    if not between:
        return None
    simulated = {row.workers for row in rows if row.interpolated is None}
    neighbours = listed([str(workers) for workers in sorted(simulated)])
    return (
        f"interpolated: {len(between)} of {counted(len(rows), 'row')}, on a line of the time of a step"
        f" between neighbours that were simulated, {neighbours} workers; fewer numbers of workers, or fewer"
        " --steps, are all simulated"
    )


def _machines(rows: Sequence[Prediction]) -> str:
    """Workers and servers of ``rows``, those of one number of servers together."""
    beside: dict[int, list[int]] = {}
    for row in rows:
        beside.setdefault(row.servers, []).append(row.workers)
    return listed(
        [
            workers_text(sorted(counts)) + (f" on {counted(servers, 'server')}" if servers else "")
            for servers, counts in beside.items()
        ]
    )


def workers_text(counts: Sequence[int]) -> str:
    """Rising ``counts`` in words: ``2 workers``, ``2, 4 and 8 workers``, ``2 to 9 and 12 workers``."""
    parts: list[list[int]] = []
    for count in counts:
        if parts and count == parts[-1][-1] + 1:
            parts[-1].append(count)
        else:
            parts.append([count])
    said = [
        text
        for part in parts
        for text in ([f"{part[0]} to {part[-1]}"] if len(part) > 2 else [str(count) for count in part])
    ]
    if len(said) > _NAMED:
        return f"{len(counts)} numbers of workers tried from {counts[0]} to {counts[-1]}"
    return f"{listed(said)} {'worker' if list(counts) == [1] else 'workers'}"
