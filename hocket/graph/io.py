"""Reading and writing the formats: whole files or none, and one line for whatever is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zstandard

from hocket.errors import FormatError, HocketError
from hocket.graph.plan import PLAN_FORMAT, Plan
from hocket.graph.step import PHASE_NAMES, StepGraph
from hocket.graph.validate import STEP_FORMAT, StepRows, step_from_rows

T = TypeVar("T")


class _Head(msgspec.Struct):
    format: str


def load_step(path: str | Path) -> StepGraph:
    """Read a ``hocket.step/1`` file (``.json`` or ``.json.zst``).

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.
    """
    return step_from_rows(decode(read_bytes(path), StepRows, STEP_FORMAT, str(path)), str(path))


def save_step(graph: StepGraph, path: str | Path) -> None:
    """Write ``graph`` as ``hocket.step/1``, whole or not at all."""
    write_json(step_document(graph), path)


def step_document(graph: StepGraph) -> dict[str, Any]:
    """The ``hocket.step/1`` document of ``graph`` as plain data."""
    parameters, operations = graph.parameter_names, graph.operation_names
    return {
        "format": STEP_FORMAT,
        "model": graph.model,
        "batch_size": graph.batch_size,
        "device": graph.device,
        "parameters": [
            {
                "name": name,
                "shape": list(graph.parameter_shapes[i]),
                "dtype": graph.parameter_dtypes[i],
                "bytes": int(graph.parameter_bytes[i]),
            }
            for i, name in enumerate(parameters)
        ],
        "operations": [
            {
                "name": name,
                "phase": PHASE_NAMES[graph.phases[i]],
                "duration_s": graph.durations_s[i].tolist(),
                "inputs": [operations[j] for j in graph.inputs.row(i)],
                "reads": [parameters[j] for j in graph.reads.row(i)],
                "produces": [parameters[j] for j in graph.produces.row(i)],
            }
            for i, name in enumerate(operations)
        ],
    }


def load_plan(path: str | Path) -> Plan:
    """Read a ``hocket.plan/1`` file; whether it fits a step is :func:`hocket.graph.validate.check_plan`'s.

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.
    """
    return decode(read_bytes(path), Plan, PLAN_FORMAT, str(path))


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write ``plan`` as ``hocket.plan/1``, whole or not at all."""
    write_json(plan_document(plan), path)


def plan_document(plan: Plan) -> dict[str, Any]:
    """The ``hocket.plan/1`` document of ``plan`` as plain data, without the other architecture's keys."""
    fields: dict[str, Any] = msgspec.to_builtins(plan)
    for key in ("reductions",) if plan.architecture == "ps" else ("pulls", "pushes"):
        del fields[key]
    return fields


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file, decompressed when its name ends in ``.zst``."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FormatError(str(path), "", f"cannot be read: {error.strerror or error}") from None
    if str(path).endswith(".zst"):
        try:
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        except zstandard.ZstdError as error:
            raise FormatError(str(path), "", f"is not a whole zstd file: {error}") from None
    return data


def decode(data: bytes, type_: type[T], expected_format: str, source: str) -> T:
    """Decode a JSON document of ``expected_format`` into ``type_``, refusing it in one line otherwise."""
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.ValidationError as error:
        raise _refusal(error, data, expected_format, source) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        not_json = FormatError(source, "", f"is not JSON: {error}")
    # NaN and Infinity are no JSON, but Python writes them: read them so that the field can be named.
    try:
        builtins = json.loads(data)
        _refuse_not_finite(builtins, source, "")
        return msgspec.convert(builtins, type=type_)
    except msgspec.ValidationError as error:
        raise FormatError(source, *_field_and_rule(error)) from None
    except (ValueError, RecursionError):
        raise not_json from None


def _refusal(error: msgspec.ValidationError, data: bytes, expected_format: str, source: str) -> FormatError:
    """The format first, if that is what is wrong: a plan read as a step misses fields it never had."""
    try:
        found = msgspec.json.decode(data, type=_Head).format
    except msgspec.ValidationError as head_error:
        return FormatError(source, *_field_and_rule(head_error))
    if found != expected_format:
        return FormatError(source, "format", f"'{found}' is not '{expected_format}', which is needed here")
    return FormatError(source, *_field_and_rule(error))


def _refuse_not_finite(value: Any, source: str, field: str) -> None:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise FormatError(source, field, f"{value} is not a finite number")
    items: Any = ()
    if isinstance(value, dict):
        items = ((f"{field}.{key}".lstrip("."), inner) for key, inner in value.items())
    elif isinstance(value, list):
        items = ((f"{field}[{i}]", inner) for i, inner in enumerate(value))
    for name, inner in items:
        _refuse_not_finite(inner, source, name)


def _field_and_rule(error: msgspec.ValidationError) -> tuple[str, str]:
    rule, _, path = str(error).partition(" - at `")
    return path.rstrip("`").removeprefix("$").removeprefix("."), _lower_first(rule)


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def write_json(document: Any, path: str | Path) -> None:
    """Write ``document`` as JSON (compressed for ``.zst``), whole or not at all."""
    data = msgspec.json.encode(document)
    if str(path).endswith(".zst"):
        data = zstandard.ZstdCompressor().compress(data)
    write_whole(data, path)


def write_whole(data: bytes, path: str | Path) -> None:
    """Put ``data`` at ``path`` by renaming a finished neighbour, so that no reader sees half of it."""
    target = Path(path)
    check_writable(target)
    blocked = {signal.SIGINT, signal.SIGTERM}
    # An interrupt between creating the neighbour and renaming it would leave it lying there.
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise HocketError(f"{target}: cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def check_writable(path: str | Path) -> None:
    """Refuse an output path that cannot be written, before the work for it is done."""
    target = Path(path)
    if target.is_dir():
        raise HocketError(f"{target}: is a folder; name a file in it")
    if not target.parent.is_dir():
        raise HocketError(f"{target}: the folder '{target.parent}' does not exist; create it first")
    if not os.access(target.parent, os.W_OK):
        raise HocketError(f"{target}: the folder '{target.parent}' is not writable")
