"""What the rows of a prediction say, in words: where throughput saturates, on what, and at which price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hocket.predictor.prediction import Prediction
from hocket.words import counted, four_digits

SATURATED = 0.95

_MODES = {"async": "asynchronous", "sync": "synchronous"}


def curves(rows: Iterable[Prediction]) -> list[list[Prediction]]:
    """``rows`` that differ in their workers only, by workers; curves in the order of their first rows."""
    found: dict[tuple[int, str], list[Prediction]] = {}
    for row in rows:
        found.setdefault((row.servers, row.mode), []).append(row)
    return [sorted(curve, key=lambda row: row.workers) for curve in found.values()]


def saturation(curve: Sequence[Prediction]) -> Prediction | None:
    """The fewest workers that reach :data:`SATURATED` of the curve's best; None where throughput still grows.

    It still grows where the most workers alone reach that much, and where what is left to gain is more than
    half of what is left in workers: of a straight line's last points several are within 5% of its end.
    """
    best = max(row.throughput for row in curve)
    reaching = next(row for row in curve if row.throughput >= SATURATED * best)
    if best <= 0 or reaching.workers == curve[-1].workers:
        return None
    gain, growth = best / reaching.throughput - 1, curve[-1].workers / reaching.workers - 1
    return reaching if gain <= growth / 2 else None


def speedup(row: Prediction, least: Prediction) -> float | None:
    """How many times the throughput of ``least`` that of ``row`` is; None if ``least`` has none."""
    return row.throughput / least.throughput if least.throughput > 0 else None


def efficiency(row: Prediction, least: Prediction) -> float | None:
    """The speed-up over ``least`` as a fraction of what as many more workers could give at best."""
    gained = speedup(row, least)
    return None if gained is None else gained * least.workers / row.workers


def cheapest(rows: Iterable[Prediction]) -> Prediction | None:
    """The row with the lowest cost of an example, the first of equals; None without prices."""
    priced = [row for row in rows if row.cost_per_example is not None]
    return min(priced, key=lambda row: row.cost_per_example or 0.0, default=None)


def name_of(curve: Sequence[Prediction], rows: Sequence[Prediction]) -> str:
    """What sets ``curve`` apart among ``rows``: its servers, and its mode where there are two."""
    servers = counted(curve[0].servers, "server") if curve[0].servers else "all-reduce"
    return servers if len({row.mode for row in rows}) == 1 else f"{servers}, {_MODES[curve[0].mode]}"


def lockstep_note(rows: Iterable[Prediction]) -> str | None:
    """Why the figures are pessimistic, where workers never drift apart; None where they do."""
    if not any(row.lockstep for row in rows):
        return None
    return (
        "the profile has a single sampled step: workers that start together stay in lockstep and always "
        "share the network at the same moments, while real workers drift apart and take turns, so these "
        "figures are pessimistic; let them begin apart with --spread, or profile with more --steps (and "
        "--jitter for a derived device)"
    )


def answers(rows: Sequence[Prediction]) -> list[str]:
    """One line for each curve of ``rows``, one for the cheapest row if there are prices, one for lockstep."""
    lines = [f"{name_of(curve, rows)}: {_growth(curve)}" for curve in curves(rows)]
    best_buy = cheapest(rows)
    if best_buy is not None and best_buy.cost_per_example is not None:
        machines = counted(best_buy.workers, "worker")
        if best_buy.servers:
            machines += f" and {counted(best_buy.servers, 'server')}"
        lines.append(
            f"cheapest: {machines}, {four_digits(1e6 * best_buy.cost_per_example)} per million examples"
        )
    caveat = lockstep_note(rows)
    return lines if caveat is None else [*lines, caveat]


def _growth(curve: Sequence[Prediction]) -> str:
    least, most, knee = curve[0], curve[-1], saturation(curve)
    row = knee or most
    workers = counted(row.workers, "worker")
    if least.workers == most.workers:
        said = f"{workers} reach" + ("es" if row.workers == 1 else "")
    else:
        said = f"throughput saturates at {workers}," if knee else f"throughput still grows at {workers},"
    gained, kept = speedup(row, least), efficiency(row, least)
    over = ""
    if row.workers > least.workers and gained is not None and kept is not None:
        over = f" ({gained:.2f}x {counted(least.workers, 'worker')}, efficiency {kept:.0%})"
    busiest = f"busiest there: {row.bottleneck}, {row.bottleneck_utilization:.0%} of the time"
    return f"{said} {four_digits(row.throughput)} examples/s{over}; {busiest}"
