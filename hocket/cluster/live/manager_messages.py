"""Messages between commands and a cluster's manager, once they have proved that they know its token."""

from __future__ import annotations

import msgspec

from hocket.cluster.live.runnable_jobs import LiveJob

MOST_BYTES = 64 << 20
"""The most bytes of a command's message."""


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Run these jobs. One that is known by its id already is not run again."""

    jobs: tuple[LiveJob, ...]


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End a job, wherever it is."""

    job: str


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Place nobody on a node any more; ``on`` False: place there again."""

    node: str
    on: bool


class AskStatus(msgspec.Struct, frozen=True, tag=True):
    """A request for the state of all jobs and nodes."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job as people see it; times in seconds since the cluster's beginning.

    ``stage``: queued, computing, transferring and so on; ``gpus``: pairs of server and GPU.
    """

    id: str
    model: str
    state: str
    stage: str
    gpus: tuple[tuple[int, int], ...]
    wanted: int
    iteration: int
    iterations: int
    attempt: int
    arrival_s: float
    start_s: float | None
    finish_s: float | None
    jct_s: float | None
    why: str


class TransferSpan(msgspec.Struct, frozen=True, array_like=True):
    """A transfer on servers' links; without an end while it is under way."""

    job: str
    servers: tuple[int, ...]
    start_s: float
    end_s: float | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as it is; ``average_jct_s``: of finished jobs, None where there is none.

    ``drained``, ``silent``: nodes that get no job, since a command said so and since they do not answer.
    """

    now_s: float
    placement: str
    policy: str
    gpus_per_server: int
    nodes: tuple[str, ...]
    drained: tuple[str, ...]
    silent: tuple[str, ...]
    jobs: tuple[JobStatus, ...]
    transfers: tuple[TransferSpan, ...]
    average_jct_s: float | None


class ManagerAnswer(msgspec.Struct, frozen=True):
    """``refused``: why a request was not served, in a line; ``notes``: of each job, or whatever was asked."""

    refused: str = ""
    notes: tuple[str, ...] = ()
    status: Status | None = None


FromClient = Submit | Cancel | Drain | AskStatus
