"""What the rows of a prediction say, in words: where throughput saturates, on what, and at which price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hocket.predictor.prediction import Prediction
from hocket.words import counted, four_digits

SATURATED = 0.95
_CHANCE = 0.01  # what throughputs are taken to differ by where no interval says more

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


def base_note(rows: Iterable[Prediction]) -> str | None:
    """A note on what speed-ups and efficiencies are against; None where they are not defined."""
    row = next(iter(rows), None)
    if row is None or row.alone_throughput is None:
        return None
    updates = " or updates, which servers run" if row.architecture == "ps" else ""
    return (
        f"x and efficiency are against one worker alone, without a network{updates}:"
        f" {four_digits(row.alone_throughput)} examples/s"
    )


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
    chance = max(_CHANCE, _relative_half_width(row) + _relative_half_width(of_best))
    return abs((value or 0.0) - (best or 0.0)) <= chance * (best or 0.0)


def _relative_half_width(row: Prediction) -> float:
    if row.throughput_low is None or row.throughput_high is None or row.throughput <= 0:
        return 0.0
    return (row.throughput_high - row.throughput_low) / 2 / row.throughput


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


def unsteady_note(rows: Iterable[Prediction]) -> str | None:
    """A note on rows whose runs had not settled when they ended; None where all had."""
    unsteady = [row for row in rows if row.steady is False]
    if not unsteady:
        return None
    named = ", ".join(str(count) for count in sorted({row.workers for row in unsteady}))
    return (
        f"not steady: of {named} workers, the halves of a run differ by more than 5% after"
        f" {max(row.steps for row in unsteady)} steps; give more --max-steps, or --spread"
        " for asynchronous workers that begin apart"
    )


def answers(rows: Sequence[Prediction]) -> list[str]:
    """A line for each curve of ``rows``, for the cheapest row if there are prices, and for each caveat."""
    lines = [f"{name_of(curve, rows)}: {_growth(curve)}" for curve in curves(rows)]
    best_buy = cheapest(rows)
    if best_buy is not None and best_buy.cost_per_example is not None:
        machines = counted(best_buy.workers, "worker")
        if best_buy.servers:
            machines += f" and {counted(best_buy.servers, 'server')}"
        lines.append(
            f"cheapest: {machines}, {four_digits(1e6 * best_buy.cost_per_example)} per million examples"
        )
    return lines + caveats(rows)


def caveats(rows: Sequence[Prediction]) -> list[str]:
    """Reasons why figures of ``rows`` are not what they seem."""
    return [note for note in (lockstep_note(rows), unsteady_note(rows)) if note is not None]


def _growth(curve: Sequence[Prediction]) -> str:
    least, most, knee = curve[0], curve[-1], saturation(curve)
    row = knee or most
    rate = f"{four_digits(row.throughput)} examples/s"
    over = ""
    if row.speedup is not None and row.efficiency is not None:
        over = f" ({row.speedup:.2f}x one worker alone, efficiency {row.efficiency:.0%})"
    busiest = f"busiest there: {row.bottleneck}, {row.bottleneck_utilization:.0%} of the time"
    return f"{_verdict(curve, least, most, knee)} {rate}{over}; {busiest}"


def _verdict(
    curve: Sequence[Prediction], least: Prediction, most: Prediction, knee: Prediction | None
) -> str:
    """The course of throughput over ``curve``; a rate follows: of the knee, else of the most workers."""
    workers = counted((knee or most).workers, "worker")
    if least is most:
        return f"{workers} reach" + ("es" if most.workers == 1 else "")
    if knee is least:
        following = curve[1]
        ratio = following.throughput / least.throughput
        said = (
            "slower" if not _level(following.throughput, least.throughput, following, least) else "no faster"
        )
        if ratio > 1 and said == "slower":
            said = "hardly faster"
        more = counted(following.workers, "worker")
        return f"{more} are {said} than {least.workers} ({ratio:.2f}x); {workers} reach" + (
            "es" if least.workers == 1 else ""
        )
    at = next(k for k, row in enumerate(curve) if row is (knee or most))
    before = curve[at - 1]
    gap = ""
    if curve[at].workers > 2 * before.workers:
        gap = f" (none was tried between {before.workers} and {curve[at].workers})"
    if knee:
        return f"throughput saturates at {workers}{' or fewer' if gap else ''}{gap},"
    if gap:
        return f"throughput grows up to {workers}, or up to fewer{gap},"
    return f"throughput still grows at {workers},"
