"""Operations of a manager's HTTP API: a table that its server, the commands and its description share.

Each has a method, a path and the message that it stands for. The message's fields are in the path where that
names them, else in the query of a GET and in the JSON of a POST.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from hocket.cluster.jobs_file import FROM_STEP, JOBS_FORMAT
from hocket.cluster.live.manager_messages import (
    AskEvents,
    AskJob,
    AskJobs,
    AskLog,
    AskStatus,
    AskWhy,
    Cancel,
    Drain,
    FromClient,
    Submit,
)
from hocket.cluster.live.runnable_jobs import decode_live_jobs
from hocket.errors import HocketError, UnknownNameError


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation; ``answers``: the field of the answer that it fills, ``summary``: in a line.

    ``follows``: it answers with server-sent events instead, until what is followed is over.
    """

    name: str
    method: Literal["GET", "POST"]
    path: str
    message: type[FromClient]
    answers: str
    summary: str
    follows: bool = False

    @property
    def in_path(self) -> tuple[str, ...]:
        """The fields of the message that its path names."""
        return tuple(name for _, name, _, _ in string.Formatter().parse(self.path) if name is not None)


SUBMIT = Operation(
    name="submit",
    method="POST",
    path="/v1/jobs",
    message=Submit,
    answers="notes",
    summary="Hand in jobs, a hocket.jobs/1 document. One that is known by its id is not run again.",
)
STATUS = Operation(
    name="status",
    method="GET",
    path="/v1/status",
    message=AskStatus,
    answers="status",
    summary="The cluster as it is: nodes, jobs, transfers.",
)
_CALLED = (
    SUBMIT,
    Operation(
        name="list",
        method="GET",
        path="/v1/jobs",
        message=AskJobs,
        answers="jobs",
        summary="The jobs, of one state if given; with all, those that were over long ago, too.",
    ),
    Operation(
        name="job",
        method="GET",
        path="/v1/jobs/{job}",
        message=AskJob,
        answers="jobs",
        summary="One job.",
    ),
    Operation(
        name="why",
        method="GET",
        path="/v1/jobs/{job}/why",
        message=AskWhy,
        answers="notes",
        summary="The reason why a job is as it is, in a line.",
    ),
    Operation(
        name="log",
        method="GET",
        path="/v1/jobs/{job}/log",
        message=AskLog,
        answers="log",
        summary="A part of what a rank printed, at most 256 KiB, from where the part before says.",
    ),
    Operation(
        name="cancel",
        method="POST",
        path="/v1/jobs/{job}/cancel",
        message=Cancel,
        answers="notes",
        summary="End a job, wherever it is.",
    ),
    STATUS,
    Operation(
        name="events",
        method="GET",
        path="/v1/events",
        message=AskEvents,
        answers="events",
        summary="What happened after the event of that number, at most 2000 events, of one job if given.",
    ),
    Operation(
        name="drain",
        method="POST",
        path="/v1/nodes/{node}/drain",
        message=Drain,
        answers="notes",
        summary="Place no job on a node any more; on false: place jobs there again.",
    ),
)
_FOLLOWED = (
    Operation(
        name="follow_log",
        method="GET",
        path="/v1/jobs/{job}/log/follow",
        message=AskLog,
        answers="log",
        summary="What a rank prints, as it comes, in all attempts unless one is given, to the job's end.",
        follows=True,
    ),
    Operation(
        name="follow_events",
        method="GET",
        path="/v1/events/follow",
        message=AskEvents,
        answers="events",
        summary="What happens, as it does, after the event of that number, or of Last-Event-ID.",
        follows=True,
    ),
)
OPERATIONS = (*_CALLED, *_FOLLOWED)

_OF_MESSAGE = {operation.message: operation for operation in _CALLED}


@dataclass(frozen=True, kw_only=True)
class HttpCall:
    """A request as it travels: ``target``: path and query, ``body``: JSON, None for none."""

    method: str
    target: str
    body: bytes | None


def call_of(message: FromClient) -> HttpCall:
    """The request that stands for a message."""
    operation = _OF_MESSAGE[type(message)]
    fields = msgspec.to_builtins(message)
    target = operation.path.format_map({name: _in_path(fields.pop(name)) for name in operation.in_path})
    if operation.method == "POST":
        if isinstance(message, Submit):
            fields = {"format": JOBS_FORMAT, "jobs": [_row(job) for job in fields["jobs"]]}
        return HttpCall(method="POST", target=target, body=msgspec.json.encode(fields))
    given = {name: _in_query(value) for name, value in fields.items() if value is not None}
    return HttpCall(method="GET", target=f"{target}?{urlencode(given)}" if given else target, body=None)


def message_of(
    operation: Operation, path: Mapping[str, str], query: Mapping[str, str], body: bytes
) -> FromClient:
    """The message that a request stands for; HocketError, in a line, where it is none."""
    if operation is SUBMIT:
        try:
            return Submit(decode_live_jobs(body, "the request"))
        except UnknownNameError as error:  # of a field, not of what there is
            raise HocketError(str(error)) from None
    given: dict[str, Any] = {**query}
    if body:
        given = _document(body)
    known = operation.message.__struct_fields__
    if unknown := sorted(given.keys() - {*known} - {*path}):
        raise HocketError(
            f"'{unknown[0]}' is no parameter of {operation.method} {operation.path}; it takes "
            f"{', '.join(name for name in known if name not in path) or 'none'}"
        )
    try:
        return msgspec.convert({**given, **path}, operation.message, strict=False)
    except msgspec.ValidationError as error:
        raise HocketError(f"{operation.method} {operation.path}: {error}") from None


def _row(job: dict[str, Any]) -> dict[str, Any]:
    """A job as documents have it: what its step and plan say is left out."""
    said = FROM_STEP if "step" in job else ()
    return {name: value for name, value in job.items() if name not in said}


def _document(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HocketError(f"the request's body is no JSON object ({error})") from None


def _in_path(name: str) -> str:
    # "." and ".." are steps in a path, which whoever stands in between may take.
    return quote(name, safe="").replace(".", "%2E") if set(name) == {"."} else quote(name, safe="")


def _in_query(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
