"""A diagnosis: a traced job's time by what it is spent on, its best plan, and its course with more ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hocket.graph import StepGraph
from hocket.interop.imported import ImportedStep
from hocket.interop.kineto.step_times import (
    CollectiveUse,
    OperationUse,
    StepTimes,
    collective_uses,
    mean_times,
    operation_uses,
)
from hocket.interop.kineto.traced_job import TracedJob
from hocket.interop.kineto.traced_operations import UNMARKED
from hocket.network import Network
from hocket.predictor import Prediction, predict
from hocket.predictor.recorded_check import RecordedCheck, check_recorded
from hocket.tuner import Tuning, tune

HALF = 0.5
"""The efficiency at which half of a step is spent on something else than computing."""
_HARDLY = 0.1  # computing of a step, below which more ranks are not told of
# Beyond so many times the recorded ranks nothing is said.
_MOST_TIMES, _MOST_RANKS = 64, 4096
_ITERATIONS, _STEPS, _SKIP = 10, 60, 10

Progress = Callable[[str, float, float], None]


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """One rank's trace: its file, its rank if the trace says it, its steps, and what they took on average."""

    source: str
    rank: int | None
    steps: int
    times: StepTimes

    @property
    def name(self) -> str:
        """``rank 3``, or the file where the rank is not known."""
        return self.source if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """A traced job: where time goes, and, if it can be planned on a known network, what could be gained.

    Attributes
    ----------
    graph, notes
        The step, without parameters if nothing can be planned, and what was assumed of it.
    ranks
        The number that trained together; None where no trace says it.
    whole_trace
        True if nothing says where a step ends, and all of the trace counts as one.
    per_rank, times
        The time of a step of each traced rank, and the mean of all.
    collectives, operations
        The collectives and the operations of a step by name, the longest first.
    reason
        Why nothing can be planned; empty where it can.
    network
        The network that plans and predictions are for; None where none is known.
    check
        The recorded job beside its prediction; None for a job of one rank.
    tuning
        Every policy, ranked; None where nothing is planned, or for other numbers of ranks than trained where
        the prediction misses the recorded job.
    scaling
        Predictions under the best plan, all ranks equally fast, of as many as trained and twice as many each
        time, until a tenth of a step is computing; empty where the prediction misses the recorded job.
    """

    graph: StepGraph
    notes: tuple[str, ...]
    ranks: int | None
    whole_trace: bool
    per_rank: tuple[RankTimes, ...]
    times: StepTimes
    collectives: tuple[CollectiveUse, ...]
    operations: tuple[OperationUse, ...]
    reason: str
    network: Network | None = None
    check: RecordedCheck | None = None
    tuning: Tuning | None = None
    scaling: tuple[Prediction, ...] = ()

    @property
    def on_recorded_links(self) -> bool:
        """Tell whether plans and predictions are for the network that was recorded."""
        recorded, network = self.graph.recorded, self.network
        if network is None or recorded is None or recorded.network is None:
            return False
        known = recorded.network["bandwidth_bps"], recorded.network.get("startup_s", 0.0)
        return (network.bandwidth_bps, network.startup_s) == known and network.nodes is None

    @property
    def lacks_startup(self) -> bool:
        """Tell whether collectives of one size alone were recorded: starting one costs nothing here."""
        return self.on_recorded_links and self.network is not None and self.network.startup_s == 0

    @property
    def half_at(self) -> Prediction | None:
        """The first of ``scaling`` that computes for half of a step or less; None where none does."""
        return next((row for row in self.scaling if (row.efficiency or 0.0) <= HALF), None)


def diagnose(
    job: TracedJob,
    imported: ImportedStep,
    network: Network | None,
    *,
    budget_s: float = 2.0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Diagnose a job, whose step is ``imported``.

    network : of as many workers as plans are for; None: nothing is planned, and time alone is told of.
    budget_s : seconds that the search for a plan may take.
    progress : called with what is being done, and how much of how much.
    """
    told = progress or (lambda what, done, total: None)
    samples = job.samples
    times = mean_times(samples)
    graph = imported.graph
    found = Diagnosis(
        graph=graph,
        notes=imported.notes,
        ranks=_ranks(job, graph),
        whole_trace=job.structure.label == UNMARKED,
        per_rank=tuple(
            RankTimes(source=Path(trace.source).name, rank=trace.rank, steps=len(own), times=mean_times(own))
            for trace, own in zip(job.traces, job.kept, strict=True)
        ),
        times=times,
        collectives=tuple(collective_uses(samples, times)),
        operations=tuple(operation_uses(samples)),
        reason=job.reason,
    )
    if network is None or job.reason or not graph.produced.any():
        return found
    recorded = graph.recorded
    check = (
        None if recorded is None else check_recorded(graph, replace(network, num_workers=recorded.workers))
    )
    found = replace(found, network=network, check=check)
    misses = check is not None and not check.agrees
    if misses and recorded is not None and network.num_workers != recorded.workers:
        return found
    tuning = tune(
        graph,
        network,
        architecture="fsdp" if job.units else None,
        iterations=_ITERATIONS,
        budget_s=budget_s,
        progress=told,
    )
    found = replace(found, tuning=tuning)
    if misses:
        return found  # What misses the recorded job says nothing of larger ones.
    # Ranks as fast as each other: one stands for all, whatever their number.
    mean = replace(graph, durations_s=graph.durations_s.mean(axis=1, keepdims=True))
    rows = predict(
        mean,
        network,
        workers=_more_ranks(network.num_workers),
        plan=tuning.plan,
        steps=_STEPS,
        skip=_SKIP,
        progress=lambda done, total: told("predicting", done, total),
    )
    last = next((k for k, row in enumerate(rows) if (row.efficiency or 0.0) < _HARDLY), len(rows) - 1)
    return replace(found, scaling=tuple(rows[: last + 1]))


def _ranks(job: TracedJob, graph: StepGraph) -> int | None:
    """The number that trained together: of the gradients' process group, or of the job."""
    return job.traces[0].world_size if graph.recorded is None else graph.recorded.workers


def _more_ranks(ranks: int) -> list[int]:
    """As many ranks, and twice as many each time."""
    found = [ranks]
    while 2 * found[-1] <= min(_MOST_TIMES * ranks, max(_MOST_RANKS, ranks)):
        found.append(2 * found[-1])
    return found
