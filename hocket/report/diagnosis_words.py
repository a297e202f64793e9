"""A diagnosis in sentences: where a step's time goes, what plans gain, when ranks stop paying, what to do."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.diagnosis import Diagnosis
from hocket.interop.kineto.step_times import OF_GRADIENTS, OF_UNITS
from hocket.report.compared_rows import gains, usual_row
from hocket.report.verdicts import on_workers, ranking_verdict
from hocket.text import capitalized, counted, duration_text, listed, percent_text, scaled_text

_LITTLE = 0.02  # of a step, below which a part is not named
_MUCH = 0.1  # of a step, from which something is to be done about a part
_MISSED = "The prediction misses the recorded job, so nothing is said of other numbers of ranks"
_UNEVEN = 0.05  # more than the mean, from which a rank is slow


def where_time_goes(diagnosis: Diagnosis) -> str:
    """The parts of a step's time, with their shares, the largest first."""
    times = diagnosis.times
    parts = {
        "computing": times.computed_s,
        **{f"exposed {name}": seconds for name, seconds in times.exposed_s.items()},
        "idle until the host launches": times.host_s,
        "idle otherwise": times.waiting_s,
    }
    whole_s = times.elapsed_s
    told = [
        f"{name} {duration_text(seconds)} ({percent_text(seconds / whole_s)})"
        for name, seconds in sorted(parts.items(), key=lambda part: -part[1])
        if seconds >= _LITTLE * whole_s or name == "computing"
    ]
    of = "" if len(diagnosis.per_rank) == 1 else f", the mean of {len(diagnosis.per_rank)} ranks"
    if diagnosis.whole_trace:
        return (
            f"of the {duration_text(whole_s)} of the whole trace{of}, in which neither profiler.step() nor "
            f"an optimizer's step says where steps end: {', '.join(told)}"
        )
    return f"of {duration_text(whole_s)} a step{of}: {', '.join(told)}"


def answers(diagnosis: Diagnosis) -> list[str]:
    """The sentences that a diagnosis comes to, the most important first."""
    found = [capitalized(where_time_goes(diagnosis))]
    tuning, network = diagnosis.tuning, diagnosis.network
    if tuning is not None and network is not None:
        where = on_workers(tuning.best, scaled_text(network.bandwidth_bps, "bit/s"))
        found.append(capitalized(ranking_verdict(tuning.ranked, where, tuning.alike_s, tuning.alike_bound_s)))
        found += [capitalized(_scaling(diagnosis))] if diagnosis.scaling else [_MISSED]
    elif diagnosis.check is not None:
        found.append(_MISSED)
    elif diagnosis.reason:
        found.append(f"Nothing can be planned: {diagnosis.reason}")
    else:
        found.append(
            "What plans and more ranks would bring depends on the network, which the trace does not show: "
            "give --bandwidth and --latency"
        )
    if diagnosis.check is not None:
        found.append(capitalized(diagnosis.check.line))
    return found


def _scaling(diagnosis: Diagnosis) -> str:
    """The number of ranks at which half of a step is no computing, and what that takes for granted."""
    return f"{_course(diagnosis)}; {_granted(diagnosis)}"


def _granted(diagnosis: Diagnosis) -> str:
    """The ranks and links that a prediction of more ranks takes for granted."""
    of = "this network"
    recorded = diagnosis.graph.recorded
    if recorded is not None and diagnosis.on_recorded_links:
        of = f"links like those between the {recorded.workers} recorded ranks"
    said = f"for equally fast ranks on {of}"
    if diagnosis.lacks_startup:
        sharded = recorded is not None and recorded.sharded is not None
        kinds = "all-gathers and reduce-scatters" if sharded else "all-reduces"
        said += f", whose {kinds} have one size, so that what starting one costs is left out"
    return said


def _course(diagnosis: Diagnosis) -> str:
    rows, half = diagnosis.scaling, diagnosis.half_at
    if half is None:
        last = rows[-1]
        return f"up to {last.workers} ranks more than half of a step is computing ({_efficiency(last)})"
    if half is rows[0]:
        return (
            f"with {counted(half.workers, 'rank')} computing is {_efficiency(half)} of a step: half or less"
        )
    before = rows[rows.index(half) - 1]
    return (
        f"from {half.workers} ranks on half of a step or more is communication and waiting: computing is "
        f"{_efficiency(half)} of it, and {_efficiency(before)} with {before.workers}"
    )


def _efficiency(row: object) -> str:
    return percent_text(getattr(row, "efficiency", None) or 0.0)


def advice(diagnosis: Diagnosis) -> list[str]:
    """Sentences on what to do, by what takes most of a step."""
    times, whole_s = diagnosis.times, diagnosis.times.elapsed_s
    said = []
    if times.host_s >= _MUCH * whole_s:
        said.append(
            f"The GPU idles for {percent_text(times.host_s / whole_s)} of a step until the host launches "
            "what is next: larger batches, torch.compile, CUDA graphs or more loader processes shorten that, "
            "and no plan does (the profiler itself slows the host: compare with a step that is not traced)"
        )
    slow = _slow_ranks(diagnosis)
    if slow:
        said.append(
            f"{capitalized(listed(slow))} more than ranks do on average, and all others wait: look for "
            "uneven batches, a slower clock or a busy host"
        )
    if times.exposed_s.get(OF_GRADIENTS, 0.0) >= _MUCH * whole_s and diagnosis.tuning is not None:
        if gains(diagnosis.tuning.ranked):
            said.append(
                "Gradients' all-reduces are exposed, and another plan hides more of them: see the plans"
            )
        else:
            said.append(
                "Gradients' all-reduces are exposed, and no plan hides more of them: fewer bytes (a bf16 "
                "hook, fewer steps by larger batches) or a faster network do"
            )
    of_units_s = sum(times.exposed_s.get(name, 0.0) for name in OF_UNITS.values())
    if of_units_s >= _MUCH * whole_s and diagnosis.tuning is not None:
        if gains(diagnosis.tuning.ranked):
            said.append(
                "All-gathers and reduce-scatters are exposed, and other units or prefetch lists hide more of "
                "them: see the plans"
            )
        else:
            said.append(
                "All-gathers and reduce-scatters are exposed, and no plan hides more of them: fewer bytes "
                "(bf16 parameters, larger batches) or a faster network do"
            )
    placed = {OF_GRADIENTS, *(OF_UNITS.values() if diagnosis.tuning is not None else ())}
    others_s = {name: s for name, s in times.exposed_s.items() if name not in placed}
    for name, seconds in sorted(others_s.items(), key=lambda part: -part[1]):
        if seconds >= _MUCH * whole_s:
            said.append(
                f"{capitalized(name)} take {percent_text(seconds / whole_s)} of a step with nothing beside "
                "them: plans of gradients leave these as they are"
            )
    if times.waiting_s >= _MUCH * whole_s:
        said.append(
            f"The GPU idles for {percent_text(times.waiting_s / whole_s)} of a step though more is launched: "
            "waits between streams, or the start of each kernel (many small ones)"
        )
    return said


def _slow_ranks(diagnosis: Diagnosis) -> list[str]:
    """Ranks that compute for longer than others do, with by how much."""
    ranks = diagnosis.per_rank
    if len(ranks) < 2:
        return []
    mean_s = sum(rank.times.computed_s for rank in ranks) / len(ranks)
    slow = [rank for rank in ranks if rank.times.computed_s > (1 + _UNEVEN) * mean_s]
    return [f"{rank.name} computes for {percent_text(rank.times.computed_s / mean_s - 1)}" for rank in slow]


def speed_up(diagnosis: Diagnosis) -> float | None:
    """The speed of the best plan over that of the usual policy; None where nothing is planned."""
    if diagnosis.tuning is None:
        return None
    usual = usual_row(diagnosis.tuning.ranked)
    return None if usual is None else usual.iteration_s / diagnosis.tuning.best.iteration_s


def titles(diagnosis: Diagnosis) -> Sequence[str]:
    """The page's title, and the job in a few words."""
    graph, ranks = diagnosis.graph, diagnosis.ranks
    job = [graph.device, *([counted(ranks, "rank")] if ranks else [])]
    traced = sum(rank.steps for rank in diagnosis.per_rank)
    job.append(f"{counted(traced, 'step')} of {counted(len(diagnosis.per_rank), 'trace')}")
    return f"{graph.model}: where a step's time goes", ", ".join(job)
