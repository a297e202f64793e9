"""Metrics of a cluster in Prometheus' text format; all of them are of what the database keeps, or of now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import numpy as np

import hocket
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.live.context import ManagerContext
from hocket.cluster.live.devices import slots_of
from hocket.cluster.live.job_record import JobState, Record

_BUCKETS_S = (10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)

_Samples = Iterable[tuple[Mapping[str, str], float]]


class Metrics:
    """Metrics of a cluster; names end in their unit where they have one."""

    def __init__(self, context: ManagerContext, scheduling: Scheduling) -> None:
        self._context, self._scheduling = context, scheduling
        self._type_names = context.cluster.type_names()  # of each GPU

    def text(self) -> str:
        """The metrics as they are, about each a line of help, its type, and its samples."""
        records = list(self._context.records.values())
        return "".join([*self._of_cluster(), *self._of_nodes(), *self._of_queue(records), *_of_jobs(records)])

    def _of_cluster(self) -> list[str]:
        chosen = {"placement": self._scheduling.placement, "policy": self._scheduling.policy}
        labels = {"version": hocket.__version__, **chosen}
        age_s = self._context.now_s()
        return [
            _metric("hocket_info", "gauge", "1, with what the manager runs as labels.", [(labels, 1.0)]),
            _metric("hocket_age_seconds", "gauge", "Time since the cluster began.", [({}, age_s)]),
        ]

    def _of_nodes(self) -> list[str]:
        context = self._context
        up, drained = [], []
        for node in context.nodes:
            label = {"node": node.name}
            up.append((label, float(node.name not in context.silent_nodes)))
            drained.append((label, float(node.name in context.drained_nodes)))
        return [
            *self._of_gpus(),
            _metric("hocket_node_up", "gauge", "1 where a node answers.", up),
            _metric("hocket_node_drained", "gauge", "1 where no job is to be placed.", drained),
        ]

    def _of_gpus(self) -> list[str]:
        """GPUs of each node, also by their type where a cluster's GPUs have types."""
        context, per_server = self._context, self._context.cluster.gpus_per_server
        used = {gpu for run in context.runs.values() for gpu in run.record.gpus}
        has, uses = [], []
        for server, node in enumerate(context.nodes):
            of_type: dict[str, list[int]] = {}
            for gpu in range(server * per_server, server * per_server + slots_of(node, per_server)):
                of_type.setdefault(self._type_names[gpu], []).append(gpu)
            for kind, gpus in of_type.items() or [("", [])]:
                label = {"node": node.name} | ({"gpu_type": kind} if context.cluster.gpu_types else {})
                has.append((label, float(len(gpus))))
                uses.append((label, float(len(used.intersection(gpus)))))
        return [
            _metric("hocket_gpus", "gauge", "GPUs of each node.", has),
            _metric("hocket_gpus_used", "gauge", "GPUs of each node that have a job.", uses),
        ]

    def _of_queue(self, records: Sequence[Record]) -> list[str]:
        now_s = self._context.now_s()
        queue = [r for r in records if r.state == "queued" and r.arrival_s <= now_s]
        longest_s = max((now_s - record.arrival_s for record in queue), default=0.0)
        wanted = float(sum(record.job.fewest_gpus for record in queue))
        return [
            _metric("hocket_queue_jobs", "gauge", "Jobs that wait for GPUs.", [({}, float(len(queue)))]),
            _metric("hocket_queue_gpus", "gauge", "GPUs that those want, at least.", [({}, wanted)]),
            _metric(
                "hocket_queue_longest_wait_seconds",
                "gauge",
                "Time since the first of those arrived.",
                [({}, longest_s)],
            ),
        ]


def _of_jobs(records: Sequence[Record]) -> list[str]:
    states = Counter(record.state for record in records)
    retries = float(sum(record.retries for record in records))
    preemptions = float(sum(record.preempted for record in records))
    resizes = float(sum(record.shrunk + record.grown for record in records))
    jct_s = [r.finish_s - r.arrival_s for r in records if r.state == "finished" and r.finish_s is not None]
    waits_s = [max(0.0, r.start_s - r.arrival_s) for r in records if r.start_s is not None]
    return [
        _metric(
            "hocket_jobs",
            "gauge",
            "Jobs by state, of all that were submitted.",
            [({"state": state}, float(states[state])) for state in get_args(JobState)],
        ),
        _metric(
            "hocket_job_retries_total", "counter", "Attempts that failed and were followed.", [({}, retries)]
        ),
        _metric(
            "hocket_job_preemptions_total",
            "counter",
            "Attempts that ended as the job left its GPUs to another.",
            [({}, preemptions)],
        ),
        _metric(
            "hocket_job_resizes_total",
            "counter",
            "Attempts that ended as the job went on with fewer GPUs, or more.",
            [({}, resizes)],
        ),
        _histogram(
            "hocket_job_completion_seconds", "Time from arrival to end (JCT) of finished jobs.", jct_s
        ),
        _histogram("hocket_job_wait_seconds", "Time from arrival to the first GPUs.", waits_s),
    ]


def _histogram(name: str, about: str, seconds: Sequence[float]) -> str:
    """A histogram; each bucket counts what is not above its bound."""
    below = np.searchsorted(np.sort(np.array(seconds, np.float64)), _BUCKETS_S, side="right")
    lines = [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in zip(_BUCKETS_S, below, strict=True)]
    lines += [
        f'{name}_bucket{{le="+Inf"}} {len(seconds)}',
        f"{name}_sum {sum(seconds)}",
        f"{name}_count {len(seconds)}",
    ]
    return _head(name, "histogram", about) + "".join(f"{line}\n" for line in lines)


def _metric(name: str, kind: str, about: str, samples: _Samples) -> str:
    return _head(name, kind, about) + "".join(
        f"{name}{_labels(labels)} {value}\n" for labels, value in samples
    )


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return "{" + ",".join(f'{name}="{value.translate(escaped)}"' for name, value in labels.items()) + "}"
