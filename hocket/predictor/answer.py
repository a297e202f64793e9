"""Answers in words from the rows of a prediction: where throughput saturates, on what, and at which price."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.graph.plan import ARCHITECTURE_NAMES
from hocket.predictor.prediction import Prediction
from hocket.predictor.prediction_curves import (
    CHANCE,
    cheapest,
    curves,
    fastest,
    is_faster,
    network_bound,
    saturation,
)
from hocket.predictor.prediction_notes import (
    interpolated_note,
    lockstep_note,
    together_note,
    unsteady_note,
    waits_together,
    workers_text,
)
from hocket.text import capitalized, counted, digits, rate_text

_LITTLE = 0.25  # of what workers that are added could bring, below which they are said to bring little
_MORE = 1.05  # times the workers, from which on throughput has to have grown by more than chance
_HARDLY = 1.1  # times as long a step as with the number of workers before
_UNEVEN = 0.05  # of a step, from which waiting for the slowest worker is told of
_LESS = 1 - CHANCE
_NEARLY_LINEAR = 0.9  # of the growth in workers, from which on throughput has not levelled off in between
_MODES = {"async": "asynchronous", "sync": "synchronous"}


def name_of(curve: Sequence[Prediction], rows: Sequence[Prediction]) -> str:
    """The servers of ``curve`` and its mode, which all-reduce has only one of."""
    if curve[0].servers:
        return f"{counted(curve[0].servers, 'server')}, {_MODES[curve[0].mode]}"
    name = ARCHITECTURE_NAMES[curve[0].architecture]
    return name if len({row.mode for row in rows}) == 1 else f"{name}, {_MODES[curve[0].mode]}"


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
        lines.append(f"{name}{where}: {_growth(curve)}{_decides(curve)}{_doubt(curve)}")
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
            if row.servers > best.servers and is_faster(best, row):
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
    if fast is not low and fast.cost_per_example and low.cost_per_example and is_faster(fast, low):
        dearer, faster = fast.cost_per_example / low.cost_per_example, fast.throughput / low.throughput
        said += (
            f"; the fastest row, {fast.machines}, costs {dearer:.2f}x as much an example as {low.machines}"
            f" and is {faster:.2f}x as fast"
        )
    return [said]


def _decides(curve: Sequence[Prediction]) -> str:
    """A clause on the number of workers from which on the network is the bottleneck of a collective."""
    if len(curve) == 1 or curve[0].architecture == "ps":
        return ""
    bound = network_bound(curve)
    if len(bound) == len(curve):
        return "; the network decides at every number tried"
    before = curve[len(curve) - len(bound) - 1].workers
    if not bound:
        return f"; computing, not the network, decides up to {counted(before, 'worker')}"
    workers = bound[0].workers
    tried = f" (between {before} and {workers} none was tried)" if before < workers - 1 else ""
    return f"; the network decides from {counted(workers, 'worker')} on{tried}"


def _doubt(curve: Sequence[Prediction]) -> str:
    """A clause on rows that :func:`together_note` is about, where there are some."""
    if any(row.lockstep for row in curve):
        return "; pessimistic, as workers stay in lockstep: see the note"
    slow = [row.workers for row in curve if waits_together(row) and not row.spread]
    return f"; {workers_text(slow)} may be faster than shown, see the note" if slow else ""


def caveats(rows: Sequence[Prediction]) -> list[str]:
    """Reasons why figures of ``rows`` are not what they seem."""
    notes = (lockstep_note(rows), together_note(rows), unsteady_note(rows), interpolated_note(rows))
    return [note for note in notes if note is not None]


def _growth(curve: Sequence[Prediction]) -> str:
    """The course of throughput over ``curve``, as far as it was tried, and the rate it comes to."""
    best = max(curve, key=lambda row: row.throughput)
    said = _course(curve, best)
    if best.speedup is not None and best.speedup < 1 - CHANCE and best.alone_throughput is not None:
        apart = "without servers" if best.servers else "without a network"
        alone = f"one worker alone, {apart}"
        if len(curve) == 1:
            return f"{alone}, is faster, {rate_text(best.alone_throughput)}: {said}"
        return f"no number tried reaches {alone}, {rate_text(best.alone_throughput)}. {capitalized(said)}"
    return said


def _course(curve: Sequence[Prediction], best: Prediction) -> str:
    least = curve[0]
    knee = saturation(curve)
    if len(curve) == 1:
        return f"{_reached(least)}; {_busiest(least)}"
    if not is_faster(best, least):
        slower = all(is_faster(least, row) for row in curve[1:])
        compared = "slower" if slower else _no_faster(curve[1:], least)
        said = f"{_are(curve[1:])} {compared} than {least.workers}"
        return (
            f"{said} ({_ratios(curve[1:], least)}). Stay with {least.workers}, {_rate(least)}"
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
    at = "" if shown.efficiency is None else f", at {digits(100 * shown.efficiency)}% efficiency"
    why = (
        f", and a step takes hardly longer than with {curve[-2].workers},"
        f" so more workers still add examples{at}"
        if grows and level
        else ""
    )
    dip = _dip(curve, shown)
    return f"{dip}{capitalized(said) if dip else said}; {_busiest(shown, f'with {shown.workers}')}{why}"


def _dip(curve: Sequence[Prediction], shown: Prediction) -> str:
    """A clause on rows before ``shown`` by which nothing is gained over fewer workers; empty without any."""
    slower = [row for row in curve[1:] if is_faster(curve[0], row)]
    if slower:
        return f"{_are(slower)} slower than {curve[0].workers} ({_ratios(slower, curve[0])}). "
    before = [row for row in curve if row.workers < shown.workers]
    for k, row in enumerate(before):
        more = [other for other in before[k + 1 :] if other.workers >= _MORE * row.workers]
        level = [other for other in more if not is_faster(other, row)]
        if level:
            return f"{_are(level)} {_no_faster(level, row)} than {row.workers} ({_ratios(level, row)}). "
    first, second = curve[:2]
    added = second.workers / first.workers - 1
    if shown.workers > second.workers and second.throughput / first.throughput - 1 < _LITTLE * added:
        return f"{_are([second])} only {_ratios([second], first)} as fast as {first.workers}. "
    return ""


def _end(curve: Sequence[Prediction], shown: Prediction, saturates: bool) -> str:
    """A clause on where throughput saturates, or that it grows up to the most workers tried."""
    workers = counted(shown.workers, "worker")
    at = next(k for k, row in enumerate(curve) if row is shown)
    before = curve[at - 1]
    is_gap = shown.workers > 2 * before.workers
    between = f"between {before.workers} and {shown.workers}"
    if saturates:
        gap = f" or fewer (no number {between} was asked for)" if is_gap else ""
        return f"throughput saturates at {workers}{gap},"
    linear = before.throughput * shown.workers / before.workers
    if not is_gap or shown.throughput >= _NEARLY_LINEAR * linear:
        return f"throughput still grows at {workers},"
    if len(curve) == 2:
        return f"{_are([shown])} faster than {before.workers} (no other number was asked for),"
    return (
        f"throughput is highest at {workers}, the most asked for (it may level off {between}, where no number"
        " was asked for),"
    )


def _no_faster(rows: Sequence[Prediction], base: Prediction) -> str:
    """Words for ``rows`` that are not faster than ``base``, or by no more than chance explains."""
    by_chance = any(row.throughput > base.throughput * (1 + CHANCE) for row in rows)
    return "not surely faster" if by_chance else "no faster"


def _reached(row: Prediction) -> str:
    return f"{counted(row.workers, 'worker')} {'reaches' if row.workers == 1 else 'reach'} {_rate(row)}"


def _rate(row: Prediction) -> str:
    beside = [] if row.range_text is None else [row.range_text]
    if row.speedup is not None and (row.servers or f"{row.speedup:.2f}" != "1.00"):
        beside.append(f"{row.speedup:.2f}x one worker alone")
    return rate_text(row.throughput) + (f" ({'; '.join(beside)})" if beside else "")


def _busiest(row: Prediction, where: str = "") -> str:
    """The busiest resource; for how much of the time it is, the table has."""
    turns = f" and {row.other_way}, in turns" if row.takes_turns else ""
    said = f"busiest{f' {where}' if where else ''}: {row.bottleneck}{turns}"
    if (row.uneven_fraction or 0.0) >= _UNEVEN:
        said += (
            f"; up to {row.uneven_fraction:.0%} is waiting for each step's slowest worker, as"
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
