"""Users: the GPUs that their jobs hold and have held, and the quotas that these stay within.

A quota bounds the GPUs that a user's jobs hold together. A job that does not fit into it waits and stops
nobody of other users, under ``strict-fifo`` either.

Where jobs that have queued for long hold GPUs (:mod:`hocket.cluster.engine.starvation`), one that does not
fit into its user's quota holds none. While such a job waits, for its quota or on what it holds, the quota
is kept for it: no other job of its user is placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hocket.cluster.engine.policies.fair_share import attained_by
from hocket.cluster.engine.records import NEVER, NONE, USER, Records
from hocket.cluster.engine.scheduling import REST, Scheduling
from hocket.cluster.jobs import Job
from hocket.errors import HocketError, UnknownNameError
from hocket.kernel import lean_kernel
from hocket.text import counted


def user_names(known: Sequence[str], jobs: Sequence[Job]) -> list[str]:
    """The users that are known, and behind them those of ``jobs`` that are not; "" is a job's without one."""
    return list(dict.fromkeys((*known, *(job.user for job in jobs))))


def user_rows(names: Sequence[str], scheduling: Scheduling) -> Records:
    """A row for each user, who holds nothing yet."""
    rows = np.zeros(len(names), USER)
    rows["kept_for"] = NONE
    for row, name in zip(rows, names, strict=True):
        quota = scheduling.quota_of(name)
        row["quota"] = NEVER if quota is None else quota
        row["share"] = scheduling.share_of(name)
    return rows


def check_quotas(jobs: Sequence[Job], scheduling: Scheduling) -> None:
    """Refuse a job that its user's quota never has room for; raises HocketError."""
    for job in jobs:
        quota = scheduling.quota_of(job.user)
        if quota is not None and job.fewest_gpus > quota:
            raise HocketError(
                f"job '{job.id}' needs {counted(job.fewest_gpus, 'GPU')} and {quota_name(job.user)} is "
                f"{quota}; it can never be placed: raise the quota, or give the job fewer GPUs"
            )


def check_users(scheduling: Scheduling, jobs: Iterable[Job]) -> None:
    """Refuse quotas and shares of a user whom no job has; raises UnknownNameError."""
    users = {job.user for job in jobs}
    for name in (*scheduling.quotas, *scheduling.shares):
        if name != REST and name not in users:
            raise UnknownNameError("user", name, sorted(users - {""}))


def quota_name(user: str) -> str:
    """The quota of a user, in words."""
    return f"{user}'s quota" if user else "the quota of jobs without a user"


@lean_kernel
def take_gpus(users, u, num, rules, now):
    """Let user u's jobs hold so many GPUs more, or fewer if negative."""
    users[u].attained = attained_by(users, u, rules.half_life, now)
    users[u].since = now
    users[u].held += num


@lean_kernel
def in_quota(jobs, users, j):
    """True if job j may be placed as far as its user's quota goes."""
    u = jobs[j].user
    mine = users[u].kept_for == NONE or users[u].kept_for == j
    return mine and users[u].held + jobs[j].gpus <= users[u].quota


@lean_kernel
def keep_quota(jobs, users, j):
    """Keep the quota of job j's user, if it has one, for that job, unless it is kept for another."""
    u = jobs[j].user
    if users[u].quota < NEVER and users[u].kept_for == NONE:
        users[u].kept_for = j


@lean_kernel
def release_quotas(users):
    """Let quotas be kept for nobody: who it is is decided anew the next time."""
    for u in range(len(users)):
        users[u].kept_for = NONE
