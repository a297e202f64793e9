"""Answers in words from the rows of a prediction: where throughput saturates, on what, and at which price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hocket.predictor.prediction import Prediction
from hocket.text import counted, digits, listed, rate_text

SATURATED = 0.95
_CHANCE = 0.01  # what throughputs are taken to differ by where no interval says more
_CHANCE_OF_ONE = 0.05  # of asynchronous rows with one run each: a run's halves may differ by as much
_LITTLE = 0.25  # of what workers that are added could bring, below which they are said to bring little
_SPEEDED = 0.05  # of a speed-up, from which chance does not explain that it is no efficiency of equal workers
_HARDLY = 1.1  # times as long a step as with the number of workers before
_UNEVEN = 0.05  # of a step, from which waiting for the slowest worker is told of
_FULL = 0.9  # of its time, or of what as many workers could do: below it there is room
_LESS = 1 - _CHANCE
_SHOWN = 0.005  # of a speed-up, which is printed with two decimals
_NAMED = 4  # of several numbers of workers in a row

_MODES = {"async": "asynchronous", "sync": "synchronous"}
_OLDER = "; asynchronous examples are on older weights, not the same progress as synchronous ones"


def curves(rows: Iterable[Prediction]) -> list[list[Prediction]]:
    """``rows`` that differ in their workers only, by workers; curves in the order of their first rows."""
    found: dict[tuple[int, str], list[Prediction]] = {}
    for row in rows:
        found.setdefault((row.servers, row.mode), []).append(row)
    return [sorted(curve, key=lambda row: row.workers) for curve in found.values()]


def saturation(curve: Sequence[Prediction]) -> Prediction | None:
    """The fewest workers that reach :data:`SATURATED` of the curve's best; None where throughput still grows.

    Asynchronous rows with one run each reach it where chance explains the rest. Throughput still grows where
    the most workers alone reach that much, and where what is left to gain is more than half of what is left
    in workers: of a straight line's last points several are within 5% of its end.
    """
    best = max(row.throughput for row in curve)
    near = SATURATED - (_CHANCE_OF_ONE if _is_of_one_run(curve[-1]) else 0.0)
    reaching = next(row for row in curve if row.throughput >= near * best)
    if best <= 0 or reaching.workers == curve[-1].workers:
        return None
    gain, growth = best / reaching.throughput - 1, curve[-1].workers / reaching.workers - 1
    return reaching if gain <= growth / 2 else None


def fastest(curve: Sequence[Prediction]) -> Prediction | None:
    """The row that nothing tried beats, where more workers are slower or none are faster than the fewest."""
    best = max(curve, key=lambda row: row.throughput)
    if len(curve) > 1 and not _faster(best, curve[0]):
        return curve[0]
    if curve[-1].throughput < SATURATED * best.throughput and _faster(best, curve[-1]):
        return best
    return None


def base_note(rows: Sequence[Prediction]) -> str | None:
    """A note on what speed-ups and efficiencies are against; None where they are not defined."""
    if not rows or rows[0].alone_throughput is None:
        return None
    row = rows[0]
    updates = ""
    if row.architecture == "ps":
        updates = " or updates, which servers run (so compare them with all-reduce's by examples/s)"
    profiled = all(_is_of_profiled_speed(row) for row in rows)
    drawn = profiled and any(row.workers == 1 and not row.servers and _off_by_chance(row) for row in rows)
    against = "one worker alone" if profiled else "one worker alone of the profiled speed"
    also = "" if profiled else " (efficiency against what these workers would reach, each at its own)"
    return (
        f"speed-up and efficiency are against {against}, without a network{updates}{also}:"
        f" {rate_text(rows[0].alone_throughput)}"
        + (", its mean; the row of one worker draws its steps, so that it differs by chance" if drawn else "")
        + (_OLDER if any(row.mode == "async" and row.workers > 1 for row in rows) else "")
    )


def _is_of_profiled_speed(row: Prediction) -> bool:
    """True if workers are, on average, as fast as the one that was profiled."""
    if row.speedup is None or row.efficiency is None or row.efficiency >= 1.0:
        return row.speedup is None or row.speedup < (1 + _SPEEDED) * row.workers
    return abs(row.speedup / (row.efficiency * row.workers) - 1) < _SPEEDED


def _off_by_chance(row: Prediction) -> bool:
    """True if one worker, who waits for nobody, is off its profile's mean by more than is rounded away."""
    return row.alone_throughput is not None and abs(row.throughput / row.alone_throughput - 1) >= _SHOWN


def cheapest(rows: Iterable[Prediction]) -> Prediction | None:
    """The row with the lowest cost of an example; of those that differ by chance only, the fewest machines.

    None without prices.
    """
    priced = [row for row in rows if row.cost_per_example is not None]
    least = min(priced, key=lambda row: row.cost_per_example or 0.0, default=None)
    if least is None:
        return None
    level = [row for row in priced if _level(row.cost_per_example, least.cost_per_example, row, least)]
    return min(level, key=lambda row: row.workers + row.servers)


def _level(value: float | None, best: float | None, row: Prediction, of_best: Prediction) -> bool:
    """Tell whether two rows' values differ by no more than chance: their confidence intervals, or 1%."""
    least = _CHANCE_OF_ONE if _is_of_one_run(row) and _is_of_one_run(of_best) else _CHANCE
    chance = max(least, _relative_half_width(row) + _relative_half_width(of_best))
    return abs((value or 0.0) - (best or 0.0)) <= chance * (best or 0.0)


def _is_of_one_run(row: Prediction) -> bool:
    """True if chance decides by several percent, as workers drift apart, and one run alone was drawn."""
    drifts = row.mode == "async" and not row.lockstep and row.workers > 1 and row.steady is not None
    return drifts and row.throughput_low is None


def _relative_half_width(row: Prediction) -> float:
    if row.throughput_low is None or row.throughput_high is None or row.throughput <= 0:
        return 0.0
    return (row.throughput_high - row.throughput_low) / 2 / row.throughput


def name_of(curve: Sequence[Prediction], rows: Sequence[Prediction]) -> str:
    """The servers of ``curve`` and its mode, which all-reduce has only one of."""
    if curve[0].servers:
        return f"{counted(curve[0].servers, 'server')}, {_MODES[curve[0].mode]}"
    return "all-reduce" if len({row.mode for row in rows}) == 1 else f"all-reduce, {_MODES[curve[0].mode]}"


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
    slow = [row for row in rows if _waits_together(row)]
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


def _waits_together(row: Prediction) -> bool:
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


def _machines(rows: Sequence[Prediction]) -> str:
    """Workers and servers of ``rows``, those of one number of servers together."""
    beside: dict[int, list[int]] = {}
    for row in rows:
        beside.setdefault(row.servers, []).append(row.workers)
    return listed(
        [
            workers_text(counts) + (f" on {counted(servers, 'server')}" if servers else "")
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


def answers(rows: Sequence[Prediction], at: str = "") -> list[str]:
    """A line for each curve of ``rows``, for the cheapest row if there are prices, and for each caveat.

    ``at``: the network's bandwidth in words, for a reader who does not see it elsewhere.
    """
    return [*verdicts(rows, at), *caveats(rows)]


def verdicts(rows: Sequence[Prediction], at: str = "") -> list[str]:
    """As :func:`answers`, without caveats."""
    lines = []
    for curve in curves(rows):
        name = name_of(curve, rows)
        where = f"{',' if ',' in name else ''} at {at}" if at else ""
        lines.append(f"{name}{where}: {_growth(curve)}{_doubt(curve)}")
    return lines + _servers_in_vain(rows) + _costs(rows)


def _servers_in_vain(rows: Sequence[Prediction]) -> list[str]:
    """A line on servers with which as many workers are slower than with fewer of them; none without any."""
    slower = []
    by_workers: dict[tuple[int, str], list[Prediction]] = {}
    for row in rows:
        by_workers.setdefault((row.workers, row.mode), []).append(row)
    for alike in by_workers.values():
        alike.sort(key=lambda row: row.servers)
        for k, row in enumerate(alike):
            best = max(alike[:k], key=lambda other: other.throughput, default=row)
            if row.servers > best.servers and _faster(best, row):
                slower.append((row, best))
    if not slower:
        return []
    row, best = min(slower, key=lambda pair: pair[0].throughput / pair[1].throughput)
    also = f", the most of {counted(len(slower), 'such row')}" if len(slower) > 1 else ""
    return [
        f"more servers may be slower: {row.machines} reach {_ratios([row], best)} of {best.machines}{also};"
        " more and smaller transfers meet where one had a link for itself"
    ]


def _costs(rows: Sequence[Prediction]) -> list[str]:
    """A line on the price of an example: the lowest, and that of the fastest row; none without prices."""
    low, fast = cheapest(rows), max(rows, key=lambda row: row.throughput)
    if low is None or low.cost_per_example is None:
        return []
    price = f"{low.machines}, {digits(1e6 * low.cost_per_example)} per million examples"
    alone = ""
    if low.alone_cost_per_example is not None and low.alone_cost_per_example < _LESS * low.cost_per_example:
        alone = f"; one worker alone costs less, {digits(1e6 * low.alone_cost_per_example)}"
    if len(rows) == 1:
        return [f"cost: {price}{alone}"]
    said = f"cheapest of these rows: {price}{alone}"
    if fast is not low and fast.cost_per_example and low.cost_per_example and _faster(fast, low):
        dearer, faster = fast.cost_per_example / low.cost_per_example, fast.throughput / low.throughput
        said += (
            f"; the fastest row, {fast.machines}, costs {dearer:.2f}x as much an example as that"
            f" and is {faster:.2f}x as fast"
        )
    return [said]


def _doubt(curve: Sequence[Prediction]) -> str:
    """A clause on rows that :func:`together_note` is about, where there are some."""
    if any(row.lockstep for row in curve):
        return "; pessimistic, as workers stay in lockstep: see the note"
    slow = [row.workers for row in curve if _waits_together(row) and not row.spread]
    return f"; {workers_text(slow)} may be faster than shown, see the note" if slow else ""


def caveats(rows: Sequence[Prediction]) -> list[str]:
    """Reasons why figures of ``rows`` are not what they seem."""
    notes = (lockstep_note(rows), together_note(rows), unsteady_note(rows))
    return [note for note in notes if note is not None]


def _growth(curve: Sequence[Prediction]) -> str:
    """The course of throughput over ``curve``, as far as it was tried, and the rate it comes to."""
    best = max(curve, key=lambda row: row.throughput)
    said = _course(curve, best)
    if best.speedup is not None and best.speedup < 1 - _CHANCE and best.alone_throughput is not None:
        apart = "without servers" if best.servers else "without a network"
        alone = f"one worker alone, {apart}"
        if len(curve) == 1:
            return f"{alone}, is faster, {rate_text(best.alone_throughput)}: {said}"
        return f"no number tried reaches {alone}, {rate_text(best.alone_throughput)}; {said}"
    return said


def _course(curve: Sequence[Prediction], best: Prediction) -> str:
    least = curve[0]
    knee = saturation(curve)
    if len(curve) == 1:
        return f"{_reached(least)}; {_busiest(least)}"
    if not _faster(best, least):
        slower = all(_faster(least, row) for row in curve[1:])
        compared = "slower" if slower else _no_faster(curve[1:], least)
        said = f"{_are(curve[1:])} {compared} than {least.workers}"
        return (
            f"{said} ({_ratios(curve[1:], least)}): stay with {least.workers}, {_rate(least)}"
            f"; {_busiest(curve[1], f'with {curve[1].workers}')}"
        )
    if fastest(curve) is best:
        shown = best
        said = f"of the numbers tried, {counted(best.workers, 'worker')} are fastest, {_rate(best)}"
        last = f"{_are([curve[-1]])} slower than {best.workers} ({_ratios([curve[-1]], best)})"
        said = f"{said}; {last}"
    elif knee is least:
        shown = best
        said = f"{_are([best])} hardly faster than {least.workers} ({_ratios([best], least)}), {_rate(best)}"
    else:
        shown = knee or curve[-1]
        said = f"{_end(curve, shown, knee is not None)} {_rate(shown)}"
    grows = knee is None and shown is curve[-1]
    level = shown.bottleneck == "network" and shown.step_s < _HARDLY * curve[-2].step_s
    why = (
        f", and a step takes hardly longer than with {curve[-2].workers}, so more workers still add examples"
        if grows and level
        else ""
    )
    return f"{_dip(curve, shown)}{said}; {_busiest(shown, f'with {shown.workers}')}{why}"


def _dip(curve: Sequence[Prediction], shown: Prediction) -> str:
    """A clause on rows before ``shown`` by which nothing is gained over fewer workers; empty without any."""
    slower = [row for row in curve[1:] if _faster(curve[0], row)]
    if slower:
        return f"{_are(slower)} slower than {curve[0].workers} ({_ratios(slower, curve[0])}); "
    before = [row for row in curve if row.workers < shown.workers]
    for k, row in enumerate(before):
        level = [other for other in before[k + 1 :] if not _faster(other, row)]
        if level:
            return f"{_are(level)} {_no_faster(level, row)} than {row.workers} ({_ratios(level, row)}); "
    first, second = curve[:2]
    added = second.workers / first.workers - 1
    if shown.workers > second.workers and second.throughput / first.throughput - 1 < _LITTLE * added:
        return f"{_are([second])} only {_ratios([second], first)} as fast as {first.workers}; "
    return ""


def _end(curve: Sequence[Prediction], shown: Prediction, saturates: bool) -> str:
    """A clause on where throughput saturates, or that it grows up to the most workers tried."""
    workers = counted(shown.workers, "worker")
    at = next(k for k, row in enumerate(curve) if row is shown)
    before = curve[at - 1]
    gap = ""
    if shown.workers > 2 * before.workers:
        gap = f" (no number between {before.workers} and {shown.workers} was asked for)"
    if saturates:
        return f"throughput saturates at {workers}{' or fewer' if gap else ''}{gap},"
    if gap and len(curve) == 2:
        return f"{_are([shown])} faster than {before.workers} (no other number was asked for),"
    if gap:
        return f"throughput is highest at {workers}, the most asked for{gap},"
    return f"throughput still grows at {workers},"


def _faster(one: Prediction, other: Prediction) -> bool:
    """Tell whether ``one`` is faster than ``other`` by more than chance."""
    return one.throughput > other.throughput and not _level(one.throughput, other.throughput, one, other)


def _no_faster(rows: Sequence[Prediction], base: Prediction) -> str:
    """Words for ``rows`` that are not faster than ``base``, or by no more than chance explains."""
    by_chance = any(row.throughput > base.throughput * (1 + _CHANCE) for row in rows)
    return "not surely faster" if by_chance else "no faster"


def _reached(row: Prediction) -> str:
    return f"{counted(row.workers, 'worker')} {'reaches' if row.workers == 1 else 'reach'} {_rate(row)}"


def _rate(row: Prediction) -> str:
    said = rate_text(row.throughput)
    if row.speedup is None or row.efficiency is None:
        return said
    return f"{said} ({row.speedup:.2f}x one worker alone, efficiency {row.efficiency:.0%})"


def _busiest(row: Prediction, where: str = "") -> str:
    share = row.busiest if row.takes_turns else f"{row.bottleneck}, {row.bottleneck_utilization:.0%}"
    said = f"busiest{f' {where}' if where else ''}: {share} of the time"
    if (row.uneven_fraction or 0.0) >= _UNEVEN:
        said += (
            f"; up to {row.uneven_fraction:.0%} is waiting for each step's slowest worker, as the profile's"
            " steps differ in length"
        )
    return said


def _are(rows: Sequence[Prediction]) -> str:
    """``2 workers are``, ``2, 4 and 8 workers are``, ``2 to 16 workers are``: of rows by workers."""
    counts = [row.workers for row in rows]
    return f"{workers_text(counts)} {'is' if counts == [1] else 'are'}"


def _ratios(rows: Sequence[Prediction], base: Prediction) -> str:
    """Throughput over that of ``base``: ``0.23x``, or the range of several."""
    if base.throughput <= 0:
        return "0 examples/s each"
    ratios = sorted(row.throughput / base.throughput for row in rows)
    shown = dict.fromkeys(f"{r:.2f}x" if r >= 0.095 else f"{r:.2g}x" for r in (ratios[0], ratios[-1]))
    return " to ".join(shown)
