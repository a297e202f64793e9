"""Answers about what happened: what a job's ranks printed, and the cluster's events."""

from __future__ import annotations

import asyncio

from hocket.cluster.live.context import ManagerContext
from hocket.cluster.live.job_record import Record
from hocket.cluster.live.manager_messages import AskEvents, AskLog, Event, JobLog
from hocket.cluster.live.nodes import Node, NodeError
from hocket.errors import HocketError
from hocket.launch.rank_logs import LogPart
from hocket.text import counted

_ANSWER_S = 10.0
_MOST_EVENTS = 2000


def events(context: ManagerContext, request: AskEvents) -> tuple[Event, ...]:
    """Events behind that of a number."""
    rows = context.database.events_after(request.after, request.job, _MOST_EVENTS)
    return tuple(
        Event(number, time_s, time_s + context.epoch_s, job, what) for number, time_s, job, what in rows
    )


async def job_log(context: ManagerContext, record: Record, request: AskLog, reason: str) -> JobLog:
    """A part of what a rank printed; HocketError for a rank or an attempt that there is not."""
    attempt = record.attempt if request.attempt is None else request.attempt
    ranks = _ranks(record, attempt)
    if not 0 <= request.rank < ranks:
        raise HocketError(
            f"rank {request.rank} of job '{record.job.id}', which has {counted(ranks, 'rank')}: "
            f"give one from 0 to {ranks - 1}"
        )
    if not (0 < attempt <= record.attempt or attempt == record.attempt):
        raise HocketError(
            f"attempt {attempt} of job '{record.job.id}', which has had {record.attempt}; give one of these"
        )
    run = context.runs.get(record.job.id)
    # Before it is read: what comes afterwards is asked for again.
    ended = run is None or run.attempt.attempt != attempt
    over, attempts = record.over, record.attempt
    part = LogPart("", request.position)
    if attempt:
        key = f"{record.number}-{attempt}-{request.rank}"
        part = await _part(context, record, key, request) or part
    return JobLog(
        part=part,
        attempt=attempt,
        attempts=attempts,
        ranks=ranks,
        ended=ended,
        over=over,
        reason=reason,
    )


def _ranks(record: Record, attempt: int) -> int:
    """The ranks of an attempt; of one that is not kept any more the most that the job may have."""
    if attempt == record.attempt:
        return record.num_gpus
    place = len(record.tried) - (record.attempt - attempt) - record.is_last_tried
    return len(record.tried[place].gpus) if 0 <= place < len(record.tried) else record.job.gpus


async def _part(context: ManagerContext, record: Record, key: str, request: AskLog) -> LogPart | None:
    """The part, from the node that the rank is on, else from whichever had it in an earlier attempt."""
    nodes = list(context.nodes)
    if request.rank < len(record.gpus):
        own = nodes[record.gpus[request.rank] // context.cluster.gpus_per_server]
        nodes.remove(own)
        nodes.insert(0, own)
    silent: list[str] = []
    for node in nodes:
        try:
            if (found := await _asked(node, key, request)) is not None:
                return found
        except (NodeError, TimeoutError):
            silent.append(node.name)
    if silent:
        raise HocketError(
            f"job '{record.job.id}': rank {request.rank}'s output is on {silent[0]}, which does not answer"
        )
    return None


async def _asked(node: Node, key: str, request: AskLog) -> LogPart | None:
    async with asyncio.timeout(_ANSWER_S):
        return await node.log(key, request.position)
