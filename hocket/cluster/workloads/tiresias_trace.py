"""Tiresias's job traces (``60_job.csv`` of its simulator; Gu et al., NSDI 2019).

Columns: ``job_id``; ``num_gpu``; ``submit_time``, seconds; ``iterations``; ``model_name``, a network of
TensorFlow's benchmarks; ``duration``, seconds that the job ran; ``interval``, seconds to the next submission
(not read).

Assumed: an iteration of a model computes for the median of duration / iterations over the trace's jobs with
one GPU, where nothing was sent; of a model without such a job, for the least over its jobs. Jobs with more
GPUs took longer for their cluster's communication, which is simulated here instead. 40% of it is
the forward pass, as in the contention paper's Table III. Sizes are published parameter counts in single
precision, and memory is estimated from them.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from hocket.cluster.jobs import Job
from hocket.cluster.workloads.trace_jobs import ImportedJobs, TraceRequest, job_set
from hocket.cluster.workloads.trace_rows import Table, TraceRow, read_rows
from hocket.cluster.workloads.trained_models import FORWARD_SHARE, estimated_memory_bytes, published_sizes

_COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")


def import_tiresias(request: TraceRequest) -> ImportedJobs:
    """The jobs of a Tiresias trace.

    Raises
    ------
    FormatError
        Naming the file, the line and the rule.
    """
    rows = list(read_rows(request.path, Table(_COLUMNS)))
    computing_s, without = _computing_s(rows)
    sizes = published_sizes()
    lines: dict[str, int] = {}
    jobs = []
    for row in rows:
        model = row.cells["model_name"]
        if model not in sizes:
            row.refuse("model_name", f"'{model}' has no known size; known are {', '.join(sizes)}")
        jobs.append(
            Job(
                id=row.new_id("job_id", lines),
                model=model,
                gpus=row.whole("num_gpu", 1),
                iterations=row.whole("iterations", 1),
                arrival_s=row.number("submit_time"),
                forward_s=FORWARD_SHARE * computing_s[model],
                backward_s=(1 - FORWARD_SHARE) * computing_s[model],
                size_bytes=sizes[model],
                memory_bytes=estimated_memory_bytes(sizes[model]),
            )
        )
    notes = [
        "an iteration computes for what the trace's jobs with one GPU took (median of each model), 40% of it "
        "forward; what others took beyond that was communication, which is simulated instead",
        "sizes are published parameter counts in single precision; memory is 4 sizes and 2.5 GB",
        "the trace has no users, priorities, types of GPUs or failures: jobs are those of one user, alike",
    ]
    if without:
        notes.append(f"no job with one GPU, the least over all jobs instead: {', '.join(sorted(without))}")
    return ImportedJobs(job_set(jobs, request), tuple(notes))


def _computing_s(rows: list[TraceRow]) -> tuple[dict[str, float], set[str]]:
    """Seconds of an iteration of each model, and the models that no job trained on one GPU."""
    alone: defaultdict[str, list[float]] = defaultdict(list)
    every: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        model, iteration_s = row.cells["model_name"], row.number("duration") / row.whole("iterations", 1)
        if iteration_s <= 0:
            row.refuse("duration", "is 0; a job takes some time")
        every[model].append(iteration_s)
        if row.whole("num_gpu", 1) == 1:
            alone[model].append(iteration_s)
    found = {model: median(alone[model]) if model in alone else min(every[model]) for model in every}
    return found, set(every) - set(alone)
