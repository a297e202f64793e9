"""The quality of a network's fits: how far they are from the timings, and whether to plan by them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from hocket.network.file import Fit, NetworkFile
from hocket.text import counted, duration_text, listed, scaled_text

POOR_FIT = 0.25
"""The rms error above which a fit is rough: costs that are off by a quarter decide more than a plan does."""
UNUSABLE_FIT = 0.5
"""The rms error above which a fit is of no use: costs are wrong by half, or by as much again."""

OF_SERVERS, OF_ALL_REDUCE = ("transfer", "parse"), ("allreduce", "contention")
OF_SHARDS = ("gather", "scatter", "exchange")
FIT_NAMES = {
    "transfer": "transfers",
    "parse": "parsing",
    "allreduce": "all-reduces",
    "contention": "all-reduces at once",
    "gather": "all-gathers",
    "scatter": "reduce-scatters",
    "exchange": "all-to-alls",
}
"""A fit's name in sentences and tables, by its key in files."""
_JUDGED = (*OF_SERVERS, *OF_ALL_REDUCE)  # fits of shards are judged where sharded steps go by them
_RECORDED = "record more steps, on several ranks"
_BETTER = "measure again while nothing else runs"
_OPTIONS = "give --bandwidth and --latency"


class _NamedFit(NamedTuple):
    name: str
    fit: Fit


def fit_warning(file: NetworkFile, used: Collection[str], instead: str = _OPTIONS) -> str | None:
    """A line about the worst of the ``used`` fits where it is rough or of no use; None where all are good.

    ``used``: of :data:`OF_SERVERS`, :data:`OF_ALL_REDUCE` and :data:`OF_SHARDS`; ``instead``: what else
    helps.
    """
    grade = fit_grade(file, used)
    if grade is None:
        return None
    again = _BETTER if file.recorded is None else _RECORDED
    return f"{grade}, and answers may be as far off; {again}, or {instead}"


def fit_grade(file: NetworkFile, used: Collection[str]) -> str | None:
    """The grade of the ``used`` fits, and how far off the worst is; None where all are good."""
    poor = _poor(file, used)
    if not poor:
        return None
    worst = poor[0].fit
    grade = "unusable" if worst.rms_error > UNUSABLE_FIT else "rough"
    return (
        f"{grade} for {listed([FIT_NAMES[each.name] for each in poor])}: times are off the fit by"
        f" {worst.rms_error:.0%} (rms, at most {worst.max_error:.0%})"
    )


def measured_verdict(file: NetworkFile) -> str:
    """A sentence on the measured network, and on whether plans can go by it."""
    startup = (
        f"{duration_text(file.startup_s)} a transfer" if file.startup_s else "a startup too short to measure"
    )
    found = f"{scaled_text(file.bandwidth_bps, 'bit/s')} and {startup}"
    if file.host is not None:
        found += f" between {counted(file.host.workers, 'worker')} on {file.host.where}"
    poor = _poor(file, _JUDGED)
    if not poor:
        rms = max((each.fit.rms_error for each in _fits(file, _JUDGED)), default=0.0)
        within = f"within {max(rms, 0.001):.1%} (rms) of what was timed"
        return f"{found}; fits of transfers and all-reduces are {within}: plan by them"
    worst, names = poor[0].fit, listed([FIT_NAMES[each.name] for each in poor])
    off = f"the fit of {names} is off by up to {worst.rms_error:.0%} (rms; one time by {worst.max_error:.0%})"
    verdict = "do not plan by it" if worst.rms_error > UNUSABLE_FIT else "plan by it with care"
    return f"{found}; {off}: {verdict}, {_BETTER}"


def is_usable(file: NetworkFile) -> bool:
    """Tell whether no fit is rough."""
    return not _poor(file, _JUDGED)


def _fits(file: NetworkFile, used: Collection[str]) -> list[_NamedFit]:
    if file.fits is None:
        recorded = file.recorded is not None and "allreduce" in used
        return [_NamedFit("allreduce", file.recorded.fit)] if recorded else []  # type: ignore[union-attr]
    named = [(name, getattr(file.fits, name)) for name in used]
    return [_NamedFit(name, fit) for name, fit in named if fit is not None]


def _poor(file: NetworkFile, used: Collection[str]) -> list[_NamedFit]:
    """The fits that are rough, the worst first."""
    found = [each for each in _fits(file, used) if each.fit.rms_error > POOR_FIT]
    return sorted(found, key=lambda each: -each.fit.rms_error)
