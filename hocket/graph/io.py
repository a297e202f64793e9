"""Steps and plans as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from hocket.document import convert_document, decode, read_bytes, write_json
from hocket.graph.format_rules import StepRows, step_from_rows
from hocket.graph.plan import Plan
from hocket.graph.recorded_run import RecordedRun
from hocket.graph.step import PHASE_NAMES, StepGraph
from hocket.graph.unit_rules import check_units

STEP_FORMAT = "hocket.step/1"
PLAN_FORMAT = "hocket.plan/1"


class _StepFile(StepRows, frozen=True, kw_only=True):
    format: Literal["hocket.step/1"]


class _PlanFile(Plan, frozen=True, kw_only=True):
    format: Literal["hocket.plan/1"]


def load_step(path: str | Path) -> StepGraph:
    """Read a ``hocket.step/1`` file, as ``hocket profile`` and ``hocket import`` write it.

    Parameters
    ----------
    path
        The file; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard input.

    Returns
    -------
    The step.

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.

    Examples
    --------
    >>> import hocket
    >>> hocket.load_step("step.json").num_samples >= 1
    True
    """
    data = read_bytes(path, "hocket profile and hocket import write step files")
    return step_from_rows(decode(data, _StepFile, STEP_FORMAT, str(path)), str(path))


def step_from_document(document: Any, source: str) -> StepGraph:
    """The step of a ``hocket.step/1`` document; FormatError names ``source``, the field and the rule."""
    return step_from_rows(convert_document(document, _StepFile, source, STEP_FORMAT), source)


def save_step(graph: StepGraph, path: str | Path) -> None:
    """Write a step as ``hocket.step/1``, whole or not at all.

    Parameters
    ----------
    graph
        The step.
    path
        The file to write; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard output.

    Raises
    ------
    HocketError
        When the file cannot be written.

    Examples
    --------
    >>> import hocket
    >>> hocket.save_step(hocket.load_step("step.json"), "copy.json.zst")
    """
    write_json(step_document(graph), path)


def step_document(graph: StepGraph) -> dict[str, Any]:
    """The ``hocket.step/1`` document of ``graph`` as plain data."""
    parameters, operations = graph.parameter_names, graph.operation_names
    return {
        "format": STEP_FORMAT,
        "model": graph.model,
        "batch_size": graph.batch_size,
        "device": graph.device,
        **({"caveat": graph.caveat} if graph.caveat else {}),
        **({"precision": graph.precision} if graph.precision else {}),
        **({"expected_error": graph.expected_error} if graph.expected_error else {}),
        **({} if graph.memory is None else {"memory": msgspec.to_builtins(graph.memory)}),
        **({} if graph.recorded is None else {"recorded": _recorded(graph.recorded)}),
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


def _recorded(run: RecordedRun) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(run)
    if run.sharded is None:
        del fields["sharded"]
    return fields


def load_plan(path: str | Path) -> Plan:
    """Read a ``hocket.plan/1`` file, as ``hocket plan`` and ``hocket tune`` write it.

    It is not checked against a step here: that is done when the two are used together.

    Parameters
    ----------
    path
        The file; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard input.

    Returns
    -------
    The plan.

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.

    Examples
    --------
    >>> import hocket
    >>> hocket.load_plan("plan.json").policy
    'ddp'
    """
    return _plan_of(decode(read_bytes(path), _PlanFile, PLAN_FORMAT, str(path)), str(path))


def plan_from_document(document: Any, source: str) -> Plan:
    """The plan of a ``hocket.plan/1`` document; FormatError names ``source``, the field and the rule."""
    return _plan_of(convert_document(document, _PlanFile, source, PLAN_FORMAT), source)


def _plan_of(file: _PlanFile, source: str) -> Plan:
    plan = Plan(**{name: getattr(file, name) for name in Plan.__struct_fields__})
    check_units(plan, source)
    return plan


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan as ``hocket.plan/1``, whole or not at all; ``hocket train --plan`` takes the file.

    Parameters
    ----------
    plan
        The plan: one that was made, or the one in force of a model in training, ``model.hocket.plan``.
    path
        The file to write; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard output.

    Raises
    ------
    HocketError
        When the file cannot be written.

    Examples
    --------
    >>> import hocket
    >>> hocket.save_plan(hocket.load_plan("plan.json"), "copy.json")
    """
    write_json(plan_document(plan), path)


_KEYS = {
    "ps": ("pulls", "pushes", "barrier"),
    "allreduce": ("reductions",),
    "fsdp": ("units", "forward_prefetch", "backward_prefetch", "reshard_after_forward"),
}
"""The keys that only one architecture's plans have."""


def plan_document(plan: Plan) -> dict[str, Any]:
    """The ``hocket.plan/1`` document of ``plan`` as plain data, without the other architecture's keys."""
    fields: dict[str, Any] = msgspec.to_builtins(plan)
    for architecture, keys in _KEYS.items():
        for key in keys if plan.architecture != architecture else ():
            del fields[key]
    for reduction in fields.get("reductions", ()):
        if reduction["slice"] is None:
            del reduction["slice"]
        if not reduction["halves"]:
            del reduction["halves"]
    for key in ("issue", "workers", "bucket_bytes"):
        if fields[key] is None:
            del fields[key]
    if plan.barrier == "step":
        fields.pop("barrier", None)
    return {"format": PLAN_FORMAT, **fields}
