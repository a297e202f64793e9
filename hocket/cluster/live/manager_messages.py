"""Messages between a cluster's manager and its clients, who know its token."""

from __future__ import annotations

from typing import Annotated

import msgspec

from hocket.cluster.live.job_record import JobState
from hocket.cluster.live.runnable_jobs import LiveJob
from hocket.launch.rank_logs import LogPart, LogPosition

MOST_BYTES = 64 << 20
"""The most bytes of a command's request, and of its answer."""


class Submit(msgspec.Struct, frozen=True):
    """Run these jobs. One that is known by its id already is not run again."""

    jobs: tuple[LiveJob, ...]


class Cancel(msgspec.Struct, frozen=True):
    """End a job, wherever it is."""

    job: str


class Drain(msgspec.Struct, frozen=True):
    """Place nobody on a node any more; ``on`` False: place there again."""

    node: str
    on: bool = True


class AskStatus(msgspec.Struct, frozen=True):
    """A request for the state of all nodes and jobs; ``all``: of those that were over long ago, too."""

    all: bool = False


class AskJobs(msgspec.Struct, frozen=True):
    """A request for the jobs, of one state if given; ``all``: those that were over long ago, too."""

    state: JobState | None = None
    all: bool = False


class AskJob(msgspec.Struct, frozen=True):
    """A request for one job."""

    job: str


class AskWhy(msgspec.Struct, frozen=True):
    """A request for the reason why a job is as it is."""

    job: str


class AskLog(msgspec.Struct, frozen=True):
    """A request for a part of what a rank printed, in the last attempt where none is named.

    ``moved``, ``offset``: the place where the part begins, as the part before says.
    """

    job: str
    rank: int = 0
    attempt: int | None = None
    moved: bool = True
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0

    @property
    def position(self) -> LogPosition:
        """The place where the part begins."""
        return LogPosition(self.moved, self.offset)


class AskEvents(msgspec.Struct, frozen=True):
    """A request for the events behind that of a number, of one job if given."""

    after: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    job: str | None = None


class TriedStatus(msgspec.Struct, frozen=True):
    """An attempt that ended and was followed by another one; ``gpus``: pairs of server and GPU."""

    gpus: tuple[tuple[int, int], ...]
    start_s: float
    end_s: float
    why: str


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job as people see it; times in seconds since the cluster's beginning.

    ``stage``: queued, computing, transferring and so on; ``gpus``: pairs of server and GPU. ``reason``: why
    it is as it is, in a line. ``wanted``: GPUs that it is to have, ``wanted_min``: at least, None: so many.
    ``iterations``: on as many GPUs as its last attempt has, ``iteration``: those that are over. ``reports``:
    whether a rank of it has said how far it is; ``waited_s``: for GPUs and the network, up to now.
    ``start_s``: when it was first placed, ``placed_s``: when it last was; ranks are started after that.
    ``tried``: the attempts before the last one, each from its placement on.
    ``gpu_type``: of ``gpus``, "" where that is not known; ``accepted_types``: those that it may have, empty:
    any.
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
    reason: str = ""
    reports: bool = True
    waited_s: float | None = None
    placed_s: float | None = None
    tried: tuple[TriedStatus, ...] = ()
    user: str = ""
    priority: int = 0
    gpu_type: str = ""
    accepted_types: tuple[str, ...] = ()
    wanted_min: int | None = None


class TransferSpan(msgspec.Struct, frozen=True, array_like=True):
    """A transfer on servers' links; without an end while it is under way."""

    job: str
    servers: tuple[int, ...]
    start_s: float
    end_s: float | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as it is; ``average_jct_s``: of finished jobs, None where there is none.

    ``drained``, ``silent``: nodes that get no job, since a command said so and since they do not answer.
    ``num_finished``: jobs that have finished; ``left_out``: jobs that are not listed, as they were over long
    ago. ``gpus_of_node``: GPUs of each node, where they differ; ``devices``: their ids, where nodes have any;
    ``gpu_types``: the type of each of them, where any is known.
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
    num_finished: int | None = None
    left_out: int = 0
    gpus_of_node: tuple[int, ...] = ()
    devices: tuple[tuple[str, ...], ...] = ()
    gpu_types: tuple[tuple[str, ...], ...] = ()


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what a rank printed; ``attempt``: of which attempt, 0 where there was none yet.

    ``attempts``: how many there have been, ``ranks``: how many the job has; ``ended``: nothing more comes of
    this attempt, ``over``: and no other attempt follows; ``reason``: why the job is as it is.
    """

    part: LogPart
    attempt: int
    attempts: int
    ranks: int
    ended: bool
    over: bool
    reason: str


class Event(msgspec.Struct, frozen=True):
    """Something that happened, ``time_s`` after the cluster's beginning; ``unix_s``: by the clock."""

    number: int
    time_s: float
    unix_s: float
    job: str | None
    what: str


class ManagerAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a request, of which one field is given.

    ``refused``: why it was not served, in a line; ``notes``: of each job, or whatever was asked.
    """

    refused: str = ""
    notes: tuple[str, ...] = ()
    jobs: tuple[JobStatus, ...] | None = None
    status: Status | None = None
    log: JobLog | None = None
    events: tuple[Event, ...] | None = None


FromClient = Submit | Cancel | Drain | AskStatus | AskJobs | AskJob | AskWhy | AskLog | AskEvents
