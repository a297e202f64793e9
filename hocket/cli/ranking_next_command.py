"""The command to type after ``hocket tune``'s ranking: by what it found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hocket.cli.next_command import beyond_order, is_rough, measure_again
from hocket.cli.screen import command_line
from hocket.cli.step_screen import STEP, train_command
from hocket.text import percent_text, rho_text

if TYPE_CHECKING:
    import typer

    from hocket.graph import Plan, StepGraph
    from hocket.graph.result import ResultRow
    from hocket.network import Network

# So much too slowly a busy machine may compute: the README's example took up to 16 times as long as there on
# a slower computer that others used.
_MOST_TOO_SLOW = 32


@dataclass(frozen=True, kw_only=True)
class ShownRanking:
    """A ranking as it is shown: what the next command depends on.

    Attributes
    ----------
    graph, network
        The step and the network that plans are for.
    plan, path
        The best plan and its file.
    rows
        The rows that are ranked, the best first.
    alike_s
        Of some of them a step if all took the mean, by policy.
    may_be_zero
        The gain is less than the profile may be off by.
    none_fits
        No plan keeps to the limit of memory.
    copies_are_faster
        A sharded step with a copy in each node is shorter than the best of ``rows``.
    """

    graph: StepGraph
    network: Network
    plan: Plan
    path: str
    rows: Sequence[ResultRow]
    alike_s: Mapping[str, float]
    may_be_zero: bool
    none_fits: bool
    copies_are_faster: bool


def after_ranking(context: typer.Context, shown: ShownRanking) -> str:
    """The next command; where several would help, the one that decides whether the others do."""
    from hocket.report.verdicts import best_buckets

    if shown.none_fits:
        return _tune_with_more(context)
    return (
        (_without_network(context, shown.rows) if _is_doubtful(context, shown) else "")
        or _after_measuring_again(context, shown)
        or (_with_copies(context, shown.network) if shown.copies_are_faster else "")
        or _without_gain(context, shown)
        or best_buckets(shown.rows)
        or (_uncertain(context, shown) if shown.may_be_zero else "")
        or train_command(context, shown.graph, shown.plan, shown.network, shown.path)
    )


def settled(graph: StepGraph, rows: Sequence[ResultRow]) -> list[str]:
    """A line on what even a step to be measured again decides; none where it decides nothing."""
    why = _far_below_gains(rows[0])
    return (
        [f"One thing it decides: {why}, an order of transfers gains nothing"]
        if why and is_rough(graph)
        else []
    )


def _is_doubtful(context: typer.Context, shown: ShownRanking) -> bool:
    return shown.may_be_zero or is_rough(shown.graph)


def _without_network(context: typer.Context, rows: Sequence[ResultRow]) -> str:
    """The command for where a better measurement would not find a gain, either; "" elsewhere.

    A busy machine computes too slowly, which makes rho too small, but by some factor only.
    """
    best = rows[0]
    if not (why := _far_below_gains(best)):
        return ""
    return beyond_order(
        context,
        f"{why}: an order of transfers gains nothing",
        workers=best.workers,
        faster_bps=None,
        architecture=best.architecture,
    )


def _far_below_gains(best: ResultRow) -> str:
    """A clause on a rho that stays without a gain if computing was measured far too slow; "" elsewhere."""
    from hocket.report.uncertain_gain import RHO_OF_GAINS

    if best.architecture != "allreduce" or best.rho * _MOST_TOO_SLOW >= RHO_OF_GAINS:
        return ""
    return f"rho is {rho_text(best.rho)}, with computing {_MOST_TOO_SLOW} times as fast still under 0.5"


def _uncertain(context: typer.Context, shown: ShownRanking) -> str:
    """The command for a gain that may be zero: training tries plans itself, where there can be one."""
    from hocket.report.uncertain_gain import RHO_OF_GAINS

    best = shown.rows[0]
    if best.architecture == "allreduce" and best.rho >= RHO_OF_GAINS:
        return train_command(context, shown.graph, shown.plan, shown.network, None)
    return beyond_order(
        context,
        "the gain may be zero",
        workers=best.workers,
        faster_bps=shown.network.bandwidth_bps if best.rho > 1 else None,
        architecture=best.architecture,
    )


def _after_measuring_again(context: typer.Context, shown: ShownRanking) -> str:
    """The command that measures again, where that comes first, and one that trains then; else empty.

    Plans of a profile that is not to be decided by are no plans to hold: where training can choose by
    itself it is told so, or DDP's own setting where a bucket's size is all that gains.
    """
    from hocket.report.compared_rows import gains
    from hocket.report.verdicts import best_buckets

    again = measure_again(context, shown.graph)
    if not again:
        return ""
    if gains(shown.rows) and (setting := best_buckets(shown.rows)):
        return f"{again}\nThen, if it says the same: {setting}"
    # The caveat is the measurement's, which the next one is to be without.
    chooses = shown.plan.architecture == "allreduce"
    clean = dataclasses.replace(shown.graph, caveat="")
    train = train_command(context, clean, shown.plan, shown.network, None if chooses else shown.path)
    if train and chooses:
        train += f", which chooses a plan itself (--plan {shown.path} would hold this one)"
    return f"{again}\nThen: {train}" if train else again


def _tune_with_more(context: typer.Context) -> str:
    """The command for where no plan fits: it asks about twice the workers, whose shards are half as large."""
    workers = 2 * context.params["workers"]
    return command_line(context, "hocket", "tune", str(context.params["step"]), like=STEP, workers=workers)


def _without_gain(context: typer.Context, shown: ShownRanking) -> str:
    """The command for where no plan gains more than little: it asks of another network or more workers."""
    from hocket.report.compared_rows import gained, gains

    if gains(shown.rows, shown.alike_s):
        return ""
    best, gain = shown.rows[0], gained(shown.rows, shown.alike_s)
    what = "the best units gain" if best.architecture == "fsdp" else "the order of transfers gains"
    return beyond_order(
        context,
        f"{what} {percent_text(gain) if gain else 'nothing'}",
        workers=best.workers,
        faster_bps=shown.network.bandwidth_bps if best.rho > 1 else None,
        architecture=best.architecture,
    )


def _with_copies(context: typer.Context, network: Network) -> str:
    """The command that ranks plans with a copy in each node."""
    gpus = 1 if network.nodes is None else network.nodes.gpus
    step = str(context.params["step"])
    command = command_line(context, "hocket", "tune", step, like=STEP, shards=gpus)
    return f"{command}  # a copy in each node (HSDP) sends less between them"
