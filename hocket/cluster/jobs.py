"""Training jobs that share a cluster, and the rules that they satisfy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from hocket.cluster.gpu_type import TYPE_RULE, is_type_name
from hocket.errors import FormatError

_MOST_GPUS = 1_000_000
_MOST_ITERATIONS = 10**12
_LONGEST_S = 1e9
_LARGEST_BYTES = 2.0**53  # sizes take part in float arithmetic: past this they would not be exact
_MOST_BATCHES = 10_000
_HIGHEST_PRIORITY = 1_000_000_000
_LONGEST_USER = 100
NO_STARTUP_S = 0.0
"""The default of jobs and of their rows: msgspec leaves a default out where it is the very same object."""
_SLOWEST = 1e-6
_SAME = 1 + 1e-9  # what differs by less is the same but for rounding


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Gradients that travel together beside computing.

    ``ready_s``: they are complete when an iteration has computed for so long; ``due_s``: the next iteration
    computes no further than this before they have arrived.
    """

    size_bytes: float
    ready_s: float
    due_s: float


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One training job: every iteration, each of its GPUs computes, then all of them AllReduce.

    ``arrival_s``: when it is submitted; ``forward_s``, ``backward_s``: what each GPU computes an iteration;
    ``size_bytes``: what its AllReduces sum up in one; ``memory_bytes``: what it needs of each of its GPUs.
    ``batches``: in the order in which they travel, one at a time; with them transfers overlap computing, and
    the next iteration begins when this one is computed. Without any there is one transfer after each.
    ``startup_s``: for how long it has its GPUs and does not compute yet, while its processes come up.
    ``speeds``: by types of GPUs, how many times faster than said here it computes on them; it runs on no
    others. Empty: on any, as said here.
    ``user``: whose it is; jobs without one are all of one user. ``priority``: the higher is placed first.
    ``gpus_min``: it may have fewer GPUs than ``gpus``, down to so many, and then has more iterations of as
    long computing: each GPU's batch stays, and so does the number of examples. None: ``gpus``.
    ``checkpoint_s``: for how long its GPUs save its state when it is preempted, and as long again restore it
    when it goes on. None: it does not say.
    """

    id: str
    model: str
    gpus: int
    iterations: int
    arrival_s: float
    forward_s: float
    backward_s: float
    size_bytes: float
    memory_bytes: float
    batches: tuple[Batch, ...] = ()
    startup_s: float = NO_STARTUP_S
    speeds: dict[str, float] = {}
    user: str = ""
    priority: int = 0
    gpus_min: int | None = None
    checkpoint_s: float | None = None

    @property
    def fewest_gpus(self) -> int:
        """The fewest GPUs that it has."""
        return self.gpus if self.gpus_min is None else self.gpus_min

    def iterations_on(self, gpus: int) -> int:
        """The iterations in which so many GPUs compute what ``gpus`` do in ``iterations``."""
        return -(-self.iterations * self.gpus // gpus)

    def speed_on(self, gpu_type: str) -> float | None:
        """The speed of computing on GPUs of a type, None where it does not run on them."""
        return self.speeds.get(gpu_type) if self.speeds else 1.0


@dataclass(frozen=True, kw_only=True)
class JobSet:
    """Jobs in the order of their file, validated; ``source`` names them in errors.

    Raises
    ------
    FormatError
        On construction, naming ``source``, the field and the rule.
    """

    jobs: tuple[Job, ...]
    source: str = field(default="job set", compare=False)

    def __post_init__(self) -> None:
        if not self.jobs:
            raise FormatError(self.source, "jobs", "is empty; a job set has at least one job")
        first: dict[str, int] = {}
        for i, job in enumerate(self.jobs):
            _check(job, i, self.source)
            if first.setdefault(job.id, i) != i:
                rule = f"'{job.id}' is a duplicate of jobs[{first[job.id]}].id; ids are unique"
                raise FormatError(self.source, f"jobs[{i}].id", rule)


def _check(job: Job, place: int, source: str) -> None:
    def refuse(key: str, rule: str) -> NoReturn:
        raise FormatError(source, f"jobs[{place}].{key}", f"{rule} (job '{job.id}')")

    if not job.id:
        refuse("id", "is empty; name the job")
    for key, most in (("gpus", _MOST_GPUS), ("iterations", _MOST_ITERATIONS)):
        count = getattr(job, key)
        if not 1 <= count <= most:
            refuse(key, f"{count} is not a whole number from 1 to {most}")
    if not 1 <= job.fewest_gpus <= job.gpus:
        rule = f"{job.gpus_min} is not a whole number from 1 to gpus, the most it has, which are {job.gpus}"
        refuse("gpus_min", f"{rule}; lower it, or raise gpus")
    for key in ("arrival_s", "startup_s", "forward_s", "backward_s"):
        seconds = getattr(job, key)
        if not 0 <= seconds <= _LONGEST_S:
            refuse(key, f"{seconds} is not a number of seconds between 0 and 1e9")
    if job.checkpoint_s is not None and not 0 <= job.checkpoint_s <= _LONGEST_S:
        refuse("checkpoint_s", f"{job.checkpoint_s} is not a number of seconds between 0 and 1e9")
    for key in ("size_bytes", "memory_bytes"):
        size = getattr(job, key)
        if not 0 <= size <= _LARGEST_BYTES:
            refuse(key, f"{size} is not a number of bytes between 0 and 2^53")
    if job.forward_s + job.backward_s == 0:
        refuse("backward_s", "is 0 and so is forward_s; an iteration computes for some time")

    for name, speed in job.speeds.items():
        if not is_type_name(name):
            refuse(f"speeds.{name}", TYPE_RULE)
        if not _SLOWEST <= speed <= 1 / _SLOWEST:
            refuse(f"speeds.{name}", f"{speed} is not a number of times between {_SLOWEST} and 1e6")
    if not is_user_name(job.user or "_"):
        refuse("user", f"{job.user!r} is no name of a user: {USER_NAMES}")
    if not -_HIGHEST_PRIORITY <= job.priority <= _HIGHEST_PRIORITY:
        refuse("priority", f"{job.priority} is not a whole number between -1e9 and 1e9")
    if job.batches:
        _check_batches(job, refuse)


USER_NAMES = "give up to 100 characters that print, without a space, a comma, an equals sign or a star"
"""The rule of :func:`is_user_name`, in words."""


def is_user_name(name: str) -> bool:
    """True if a user can be called that: lists of users have commas, equals signs and a star in them."""
    plain = name.isprintable() and not any(sign in name for sign in " ,=*")
    return plain and 0 < len(name) <= _LONGEST_USER


def _check_batches(job: Job, refuse: Callable[[str, str], NoReturn]) -> None:
    computing_s = job.forward_s + job.backward_s
    if len(job.batches) > _MOST_BATCHES:
        refuse("batches", f"{len(job.batches)} of them are more than {_MOST_BATCHES}; send more at once")
    for i, batch in enumerate(job.batches):
        field = f"batches[{i}]"
        if not 0 <= batch.size_bytes <= _LARGEST_BYTES:
            refuse(f"{field}.size_bytes", f"{batch.size_bytes} is not a number of bytes between 0 and 2^53")
        if not 0 < batch.ready_s <= computing_s * _SAME:
            rule = f"{batch.ready_s} is not above 0 and up to forward_s + backward_s = {computing_s:.15g}"
            refuse(f"{field}.ready_s", rule)
        if not 0 <= batch.due_s < computing_s:
            rule = f"{batch.due_s} is not from 0 to below forward_s + backward_s = {computing_s:.15g}"
            refuse(f"{field}.due_s", rule)
        if batch.due_s > batch.ready_s:
            rule = f"{batch.due_s} is after ready_s {batch.ready_s}, when its gradients are computed anew"
            refuse(f"{field}.due_s", rule)
    total = sum(batch.size_bytes for batch in job.batches)
    if abs(total - job.size_bytes) > (_SAME - 1) * job.size_bytes:
        refuse("batches", f"have {total:.15g} bytes and size_bytes is {job.size_bytes:.15g}; make them agree")
