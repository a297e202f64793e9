"""The rules of the formats: what a step file and a plan must satisfy, each breach said in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Literal, NoReturn

import msgspec
import numpy as np

from hocket.errors import FormatError, HocketError
from hocket.graph.csr import Csr, find_cycle, topological_order
from hocket.graph.plan import ARCHITECTURE_NAMES, Plan, Pull, Push, Reduction
from hocket.graph.recorded_run import RecordedRun
from hocket.graph.step import PHASE_NAMES, Phase, Seconds, StepGraph
from hocket.graph.step_memory import StepMemory
from hocket.graph.unit_rules import check_units, units_breach

Refuse = Callable[[str, str], NoReturn]

_LONGEST_S = 1e9
SHORTEST_S = 1e-30  # what is shorter and not 0 has no reciprocal that can be counted with
MOST_CHUNKS = 10_000
_LARGEST = 2**53  # sizes take part in float arithmetic: past this they would not be exact


class ParameterRow(msgspec.Struct, frozen=True, gc=False):
    """A parameter as ``hocket.step/1`` writes it."""

    name: str
    shape: list[int]
    dtype: str
    bytes: int


class OperationRow(msgspec.Struct, frozen=True, gc=False):
    """An operation as ``hocket.step/1`` writes it; ``duration_s`` is one number or one a sampled step."""

    name: str
    phase: Literal["forward", "backward", "update"]
    duration_s: float | list[float]
    inputs: list[str]
    reads: list[str]
    produces: list[str]


class StepRows(msgspec.Struct, frozen=True, kw_only=True):
    """A step as ``hocket.step/1`` writes it."""

    model: str
    batch_size: int
    device: str
    parameters: list[ParameterRow]
    operations: list[OperationRow]
    caveat: str = ""
    precision: str = ""
    expected_error: float = 0.0
    memory: StepMemory | None = None
    recorded: RecordedRun | None = None


def step_from_rows(rows: StepRows, source: str = "step") -> StepGraph:
    """Validate ``rows`` and lay them out flat; ``source`` names the document in errors.

    Raises
    ------
    FormatError
        Naming ``source``, the field and the rule.
    """

    def refuse(field: str, rule: str) -> NoReturn:
        raise FormatError(source, field, rule)

    if rows.batch_size < 1:
        refuse("batch_size", f"{rows.batch_size} is not a positive whole number")
    if rows.batch_size > _LARGEST:
        refuse("batch_size", f"{rows.batch_size} is more than 2^53")
    if not 0 <= rows.expected_error < 1:
        refuse("expected_error", f"{rows.expected_error} is not a share from 0 to below 1")
    if not rows.operations:
        refuse("operations", "a step has at least one operation")
    parameters, operations = rows.parameters, rows.operations
    parameter_index = _index([p.name for p in parameters], "parameters", refuse)
    operation_index = _index([o.name for o in operations], "operations", refuse)
    for i, p in enumerate(parameters):
        if not 0 <= p.bytes <= _LARGEST:
            refuse(f"parameters[{i}].bytes", f"{p.bytes} is not between 0 and 2^53 (parameter '{p.name}')")
        if any(extent < 0 for extent in p.shape):
            refuse(f"parameters[{i}].shape", f"{p.shape} has a negative extent (parameter '{p.name}')")

    if rows.memory is not None:
        _check_memory(rows.memory, rows.batch_size, refuse)

    inputs = _edges([o.inputs for o in operations], operation_index, "inputs", "operation", refuse)
    reads = _edges([o.reads for o in operations], parameter_index, "reads", "parameter", refuse)
    produces = _edges([o.produces for o in operations], parameter_index, "produces", "parameter", refuse)
    if topological_order(inputs) is None:
        names = [operations[i].name for i in find_cycle(inputs)]
        shown = names[:6] + ["..."] * (len(names) > 6) + names[:1]
        refuse("operations", f"the inputs form a cycle ({' -> '.join(shown)}); a step is acyclic")

    return StepGraph(
        model=rows.model,
        batch_size=rows.batch_size,
        device=rows.device,
        parameter_names=tuple(parameter_index),
        parameter_shapes=tuple(tuple(p.shape) for p in parameters),
        parameter_dtypes=tuple(p.dtype for p in parameters),
        parameter_bytes=np.array([p.bytes for p in parameters], dtype=np.int64),
        operation_names=tuple(operation_index),
        phases=np.array([PHASE_NAMES.index(o.phase) for o in operations], dtype=np.int8),
        durations_s=_durations(operations, refuse),
        inputs=inputs,
        reads=reads,
        produces=produces,
        caveat=" ".join(rows.caveat.split()),
        precision=" ".join(rows.precision.split()),
        expected_error=rows.expected_error,
        memory=rows.memory,
        recorded=rows.recorded,
    )


def _check_memory(memory: StepMemory, batch_size: int, refuse: Refuse) -> None:
    """Refuse sizes that no memory has."""
    if memory.batch_size != batch_size:
        refuse("memory.batch_size", f"{memory.batch_size} is not the step's, {batch_size}")
    if not memory.moments:
        refuse("memory.moments", "is empty; a step has a moment that is fullest")
    sizes = {f"memory.{name}": value for name, value in vars(memory).items() if name.endswith("_bytes")}
    for i, moment in enumerate(memory.moments):
        sizes |= {f"memory.moments[{i}].{name}": v for name, v in vars(moment).items() if name != "phase"}
    for field, value in sizes.items():
        if not 0 <= value <= _LARGEST:
            refuse(field, f"{value} is not between 0 and 2^53")


def _index(names: Sequence[str], field: str, refuse: Refuse) -> dict[str, int]:
    index = {name: i for i, name in enumerate(names)}
    if len(index) != len(names):
        seen: set[str] = set()
        for i, name in enumerate(names):
            if name in seen:
                refuse(f"{field}[{i}].name", f"'{name}' is a duplicate; names are unique")
            seen.add(name)
    return index


def _edges(
    rows: Sequence[Sequence[str]], index: dict[str, int], field: str, kind: str, refuse: Refuse
) -> Csr:
    try:
        entries = np.fromiter(map(index.__getitem__, chain.from_iterable(rows)), dtype=np.int64)
    except KeyError:
        i, name = next((i, name) for i, row in enumerate(rows) for name in row if name not in index)
        refuse(f"operations[{i}].{field}", f"'{name}' names no {kind} of this step")
    csr = Csr.from_lengths([len(row) for row in rows], entries)
    cells = csr.row_of_entry() * len(index) + entries
    if len(np.unique(cells)) != len(cells):
        i = next(i for i, row in enumerate(rows) if len(set(row)) != len(row))
        name = next(name for name in rows[i] if rows[i].count(name) > 1)
        refuse(f"operations[{i}].{field}", f"'{name}' is listed twice (a duplicate); list it once")
    return csr


def _durations(operations: Sequence[OperationRow], refuse: Refuse) -> Seconds:
    rows = [o.duration_s if isinstance(o.duration_s, list) else [o.duration_s] for o in operations]
    counts = [len(row) for row in rows]
    num_samples = max(counts)
    for i, count in enumerate(counts):
        # A single number stands for every sampled step; lists must agree, since column k is one step.
        if count == 0 or (count != num_samples and isinstance(operations[i].duration_s, list)):
            refuse(
                f"operations[{i}].duration_s",
                f"has {count} samples where other operations have {num_samples}; one number per sampled step",
            )
    durations = np.array(
        [row if len(row) == num_samples else row * num_samples for row in rows], dtype=np.float64
    )
    bad = np.argwhere(
        ~((durations >= 0) & (durations <= _LONGEST_S)) | ((durations < SHORTEST_S) & (durations > 0))
    )
    if len(bad):
        i, k = (int(x) for x in bad[0])
        name, value = operations[i].name, durations[i, k]
        rule = f"is not a number of seconds between 0 and 1e9 (operation '{name}')"
        if 0 < value < SHORTEST_S:
            rule = f"is shorter than any operation; give 0, or from 1e-30 s (operation '{name}')"
        rule = f"{value} {rule}"
        refuse(f"operations[{i}].duration_s", rule)
    return durations


_NOTHING_SENT = (
    "so nothing is sent and nothing can be planned or predicted; profile the training step, or import a "
    "trace with its gradients (record_shapes=True)"
)


def check_exchanges(graph: StepGraph, architecture: Literal["ps", "allreduce", "fsdp"]) -> None:
    """Refuse a step that sends nothing: whatever is planned or predicted for it would look perfect.

    Raises
    ------
    HocketError
        When the step has no parameters, these have no byte, or, other than for parameter servers, it
        completes no gradient; for any number of workers.
    """
    if not graph.num_parameters:
        raise HocketError(f"the step of '{graph.model}' has no parameters, {_NOTHING_SENT}")
    if not graph.parameter_bytes.any():
        raise HocketError(f"the parameters of '{graph.model}' have no byte, {_NOTHING_SENT}")
    if architecture != "ps" and not graph.produced.any():
        exchange = ARCHITECTURE_NAMES[architecture]
        raise HocketError(
            f"the step of '{graph.model}' completes no gradient, so {exchange} has nothing to send; profile "
            "the training step, or choose parameter servers (--architecture ps), from which inference pulls"
        )


def check_plan(plan: Plan, graph: StepGraph, source: str = "plan") -> None:
    """Refuse a plan that cannot run ``graph``: incomplete, dangling, duplicated, or bound to deadlock.

    A parameter-server plan pulls every parameter once, pushes every gradient once (none when nothing is
    trained), and its compute order, if any, holds every operation of forward and backward once, each after
    its inputs. Update operations may stand in the order; servers run them as gradients arrive. Units hold
    every parameter once, in the order in which the forward pass first reads them.

    Raises
    ------
    FormatError
        Naming ``source``, the field and the rule.
    """

    def refuse(field: str, rule: str) -> NoReturn:
        if plan.model != graph.model:
            fix = f"make one of this step: hocket plan STEP --policy {plan.policy}"
            rule += f"; the plan is of model '{plan.model}', the step of '{graph.model}': {fix}"
        raise FormatError(source, field, rule)

    every = dict.fromkeys(graph.parameter_names)
    trained = {
        name for name, is_trained in zip(graph.parameter_names, graph.produced, strict=True) if is_trained
    }
    if plan.architecture == "ps":
        priorities = [pull.priority for pull in plan.pulls]
        for i, (before, after) in enumerate(pairwise(priorities)):
            if after < before:
                refuse(f"pulls[{i + 1}].priority", f"{after} stands after {before}; list pulls by priority")
        _covers("pulls", [pull.parameters for pull in plan.pulls], set(every), every, refuse)
        _covers("pushes", [push.parameters for push in plan.pushes], trained, every, refuse)
        _check_slices(plan, graph, refuse)
    elif plan.architecture == "fsdp":
        check_units(plan, source)
        _covers("units", plan.units, set(every), every, refuse)
        if (breach := units_breach(plan, graph)) is not None:
            refuse(*breach)
    else:
        # A sliced parameter counts once, where its first slice stands.
        whole = [r.parameters if r.slice is None or r.slice[0] == 0 else () for r in plan.reductions]
        _covers("reductions", whole, trained, every, refuse)
        _check_sliced_reductions(plan, graph, refuse)
        for i, reduction in enumerate(plan.reductions):
            if reduction.chunks > MOST_CHUNKS:
                refuse(f"reductions[{i}].chunks", f"{reduction.chunks} is more than {MOST_CHUNKS}; cut less")
        if plan.barrier != "step":
            refuse("barrier", f"'{plan.barrier}' is for parameter servers; all-reduce has windows instead")
    _check_names_of_others(plan, every, refuse)
    if plan.compute_order is not None:
        _check_compute_order(plan.compute_order, graph, refuse)


def check_whole(plan: Plan, source: str, runs: str) -> None:
    """Refuse a plan with halves for what ``runs`` whole reductions only.

    Raises
    ------
    FormatError
        Naming ``source``, the first such reduction and the fix.
    """
    for i, reduction in enumerate(plan.reductions):
        if reduction.halves:
            rule = f"true is for simulation and training, and {runs} reduces whole gradients"
            raise FormatError(source, f"reductions[{i}].halves", f"{rule}; plan without --clip")


def _covers(
    field: str, batches: Sequence[Sequence[str]], needed: set[str], known: dict[str, None], refuse: Refuse
) -> None:
    seen: set[str] = set()
    for i, batch in enumerate(batches):
        for name in batch:
            if name not in known:
                refuse(f"{field}[{i}].parameters", f"'{name}' names no parameter of the step")
            if name in seen:
                refuse(f"{field}[{i}].parameters", f"'{name}' is a duplicate; each parameter travels once")
            if name not in needed:
                refuse(f"{field}[{i}].parameters", f"'{name}' has no gradient in the step; leave it out")
            seen.add(name)
    missing = [name for name in known if name in needed and name not in seen]
    if missing:
        refuse(
            field,
            f"'{missing[0]}' is missing ({len(missing)} of {len(needed)} are); cover each parameter once",
        )


def _check_names_of_others(plan: Plan, known: dict[str, None], refuse: Refuse) -> None:
    """Check that the unused transfers of the other architecture name parameters of the step, too."""
    servers: dict[str, Sequence[Pull | Push | Reduction]] = {"pulls": plan.pulls, "pushes": plan.pushes}
    unused: dict[str, Sequence[Pull | Push | Reduction]] = {"reductions": plan.reductions}
    unused = unused if plan.architecture == "ps" else servers if plan.architecture == "allreduce" else {}
    for field, batches in unused.items():
        for i, batch in enumerate(batches):
            for name in batch.parameters:
                if name not in known:
                    refuse(f"{field}[{i}].parameters", f"'{name}' names no parameter of the step")


def _check_slices(plan: Plan, graph: StepGraph, refuse: Refuse) -> None:
    """A slice belongs to one parameter, is not empty, and is pulled as it was pushed."""
    sizes = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    pulled: dict[str, int] = {}
    for i, pull in enumerate(plan.pulls):
        name, most = pull.parameters[0], max(1, min(sizes[pull.parameters[0]], MOST_CHUNKS))
        pulled[name] = pull.chunks
        if pull.chunks > 1 and len(pull.parameters) > 1:
            refuse(f"pulls[{i}].chunks", f"{pull.chunks} slices of a batch; slice a parameter that is alone")
        if pull.chunks > most:
            refuse(f"pulls[{i}].chunks", f"{pull.chunks} slices of '{name}'; it takes at most {most}")
    for i, push in enumerate(plan.pushes):
        if push.chunks > 1 and len(push.parameters) > 1:
            refuse(f"pushes[{i}].chunks", f"{push.chunks} slices of a batch; slice a parameter that is alone")
        for name in push.parameters:
            if push.chunks != pulled.get(name, 1):
                rule = f"'{name}' is pushed in {push.chunks} and pulled in {pulled.get(name, 1)} slices"
                refuse(f"pushes[{i}].chunks", f"{rule}; give both the same")


def _check_sliced_reductions(plan: Plan, graph: StepGraph, refuse: Refuse) -> None:
    """All slices of a parameter are there, in order, none of them empty, and none is cut again."""
    sizes = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    seen: dict[str, tuple[int, int]] = {}
    for i, reduction in enumerate(plan.reductions):
        if reduction.slice is None:
            continue
        name, (first, end, count) = reduction.parameters[0], reduction.slice
        most = max(1, min(sizes.get(name, 1), MOST_CHUNKS))
        if len(reduction.parameters) > 1:
            refuse(f"reductions[{i}].slice", f"{count} slices of a batch; slice a parameter that is alone")
        if not 1 <= count <= most:
            refuse(f"reductions[{i}].slice", f"{count} slices of '{name}'; it takes 1 to {most}")
        if reduction.chunks > 1:
            refuse(
                f"reductions[{i}].chunks", f"{reduction.chunks} chunks of a slice; cut more slices instead"
            )
        if (first, count) != seen.get(name, (0, count)) or not first < end <= count:
            refuse(
                f"reductions[{i}].slice",
                f"{[first, end, count]} of '{name}'; slices go from [0, k, n] to [m, n, n] without a gap",
            )
        seen[name] = end, count
    for name, (end, count) in seen.items():
        if end < count:
            refuse("reductions", f"slice {end} of {count} of '{name}' is missing; send all of them")


def _check_compute_order(order: Sequence[str], graph: StepGraph, refuse: Refuse) -> None:
    index = {name: i for i, name in enumerate(graph.operation_names)}
    position: dict[int, int] = {}
    for k, name in enumerate(order):
        if name not in index:
            refuse(f"compute_order[{k}]", f"'{name}' names no operation of the step")
        if index[name] in position:
            refuse(f"compute_order[{k}]", f"'{name}' is a duplicate; each operation runs once")
        position[index[name]] = k
    for i, name in enumerate(graph.operation_names):
        if i not in position:
            if graph.phases[i] != Phase.UPDATE:
                refuse("compute_order", f"'{name}' is missing; list every forward and backward operation")
            continue
        for j in graph.inputs.row(i).tolist():
            if position.get(j, -1) > position[i]:
                before = graph.operation_names[j]
                refuse(
                    f"compute_order[{position[i]}]",
                    f"'{name}' stands before its input '{before}'; that order can never run",
                )
