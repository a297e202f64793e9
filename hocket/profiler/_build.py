"""From a step that runs to the graph of what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from hocket.errors import HocketError
from hocket.graph import OperationRow, ParameterRow, StepGraph, StepRows, step_from_rows
from hocket.profiler._record import RecordedOperation, StepRecorder
from hocket.profiler._step import ProfiledStep


def record(step: ProfiledStep, recorder: StepRecorder | None = None) -> StepRecorder:
    """Run ``step`` once and return what it did."""
    parameters = step.parameters()
    recorder = recorder or StepRecorder(parameters, step.roots)
    if step.optimizer is not None:
        recorder.own(state_of(step.optimizer, parameters))
    with recorder.recording():
        step.run(recorder.enter)
    if not recorder.operations:
        raise HocketError("the step runs no operation on a tensor; there is nothing to profile")
    return recorder


def state_of(optimizer: Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, list[Tensor]]:
    """The tensors that ``optimizer`` keeps for each parameter."""
    state = optimizer.state
    return {
        name: [value for value in state[parameter].values() if isinstance(value, Tensor)]
        for name, parameter in parameters.items()
        if parameter in state
    }


def build_graph(
    parameters: Mapping[str, nn.Parameter],
    operations: Sequence[RecordedOperation],
    durations_s: Sequence[list[float]],
    *,
    name: str,
    batch_size: int,
    device: str,
) -> StepGraph:
    """Lay out a recorded step: parameters in the order of their first read, those never read last."""
    names = list(parameters)
    order = dict.fromkeys(index for operation in operations for index in operation.reads)
    order |= dict.fromkeys(range(len(names)))
    rows = StepRows(
        model=name,
        batch_size=batch_size,
        device=device,
        parameters=[_parameter_row(names[index], parameters[names[index]]) for index in order],
        operations=[
            OperationRow(
                name=operation.name,
                phase=operation.phase.name.lower(),  # type: ignore[arg-type]
                duration_s=samples,
                inputs=[operations[index].name for index in operation.inputs],
                reads=[names[index] for index in operation.reads],
                produces=[names[index] for index in operation.produces],
            )
            for operation, samples in zip(operations, durations_s, strict=True)
        ],
    )
    return step_from_rows(rows, name)


def _parameter_row(name: str, parameter: Tensor) -> ParameterRow:
    return ParameterRow(
        name,
        list(parameter.shape),
        str(parameter.dtype).removeprefix("torch."),
        parameter.numel() * parameter.element_size(),
    )
