"""The OpenAPI description of a manager's HTTP API, made of its operations and messages."""

from __future__ import annotations

from typing import Any

import msgspec

import hocket
from hocket.cluster.jobs_file import JOBS_FORMAT
from hocket.cluster.live.api.operations import OPERATIONS, SUBMIT, Operation
from hocket.cluster.live.manager_messages import Event, JobLog, ManagerAnswer
from hocket.cluster.live.runnable_jobs import LiveJob

_SCHEMAS = "#/components/schemas/{name}"
_ABOUT = {
    "job": "The id of a job.",
    "node": "The name of a node.",
    "state": "Jobs in this state alone.",
    "all": "With jobs that were over long ago.",
    "rank": "The rank whose output it is.",
    "attempt": "The number of the attempt; without it the last one.",
    "moved": "Where the part begins: part.next[0] of the part before.",
    "offset": "Where the part begins: part.next[1] of the part before.",
    "after": "The number of the last event that is known.",
    "on": "Whether no job is to be placed there.",
}
"""A line about each parameter."""


def description() -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    types = [ManagerAnswer, LiveJob, JobLog, Event, *{operation.message for operation in OPERATIONS}]
    _, schemas = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    paths["/metrics"] = {"get": _plain("metrics", "Metrics in Prometheus' text format.", "text/plain")}
    paths["/openapi.json"] = {"get": _plain("openapi", "This description.", "application/json")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hocket: the manager of a cluster",
            "version": hocket.__version__,
            "description": "An answer is an object with one field, which each operation names; one that is "
            "refused has the field refused, a line that says why. Times are in seconds since the cluster "
            "began, sizes in bytes.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {name: schemas[name] for name in sorted(_used(paths, schemas))},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "What is in the file token of the manager's state folder.",
                }
            },
        },
    }


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    given = schemas[operation.message.__name__]["properties"]
    in_path = operation.in_path
    in_query = [] if operation.method == "POST" else [name for name in given if name not in in_path]
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            *(_parameter(name, given[name], "path") for name in in_path),
            *(_parameter(name, given[name], "query") for name in in_query),
        ],
        "responses": _responses(operation, schemas),
    }
    if operation is SUBMIT:
        found["requestBody"] = _body(
            {"format": {"const": JOBS_FORMAT}, "jobs": {"type": "array", "items": {"$ref": _ref("LiveJob")}}},
            ["format", "jobs"],
        )
    elif operation.method == "POST" and (inside := {n: s for n, s in given.items() if n not in in_path}):
        found["requestBody"] = _body(inside, [])
    return found


def _body(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


def _parameter(name: str, schema: dict[str, Any], place: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": _ABOUT[name],
        "schema": schema,
    }


def _responses(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    if operation.follows:
        kinds = {"log": "JobLog", "events": "Event"}
        about = f"Events whose data is JSON, a {kinds[operation.answers]} each."
        if operation.answers == "log":
            about += " The last one, end, has a reason."
        served = {"description": about, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    else:
        answer = schemas["ManagerAnswer"]["properties"][operation.answers]
        schema = {"type": "object", "properties": {operation.answers: answer}}
        served = {"description": "It was served.", "content": {"application/json": {"schema": schema}}}
    return {"200": served, **_refusals()}


def _refusals() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"refused": {"type": "string"}}}
    content = {"application/json": {"schema": schema}}
    whys = {
        "400": "It cannot be served as it stands.",
        "401": "The token is missing, or another one.",
        "404": "There is no such job or node.",
        "413": "The body is too large.",
        "503": "Too many clients are connected.",
    }
    return {status: {"description": why, "content": content} for status, why in whys.items()}


def _plain(name: str, summary: str, kind: str) -> dict[str, Any]:
    type_ = "object" if kind == "application/json" else "string"
    served = {"description": summary, "content": {kind: {"schema": {"type": type_}}}}
    return {"operationId": name, "summary": summary, "responses": {"200": served, **_refusals()}}


def _ref(name: str) -> str:
    return _SCHEMAS.format(name=name)


def _used(inside: Any, schemas: dict[str, Any]) -> set[str]:
    """Names of the schemas that a part of the document refers to, directly or through others."""
    found: set[str] = set()
    ahead = [inside]
    while ahead:
        part = ahead.pop()
        if isinstance(part, list):
            ahead.extend(part)
        elif isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name in schemas and name not in found:
                found.add(name)
                ahead.append(schemas[name])
            ahead.extend(part.values())
    return found
