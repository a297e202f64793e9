"""Memory that a fully sharded step needs of a worker's device, as FSDP2's allocations make it."""

from __future__ import annotations

from dataclasses import replace

from hocket.graph import MemoryMoment, MemoryNeed, StepGraph, StepMemory
from hocket.sim.lowering.unit_schedule import UnitSchedule


def sharded_need(graph: StepGraph, schedule: UnitSchedule, shards: int) -> MemoryNeed:
    """The need at the fullest moment: shards, and what the schedule holds besides in the same pass.

    The fullest moment of a pass and the most that is held in it count as one, which is at most too much.
    Where the step's memory is not known, parameters and gradients alone count.
    """
    memory = known_memory(graph) or _of_parameters(graph)
    held = {phase: float(size) for phase, size in schedule.most_held().items()}
    return memory.needed(workers=shards, sharding="parameters", held={**held, "update": 0.0})


def unheld_bytes(graph: StepGraph, shards: int) -> float:
    """The need when the backward pass begins, but for full parameters and buffers; as far as it is known."""
    memory = known_memory(graph) or _of_parameters(graph)
    backward = [moment for moment in memory.moments if moment.phase == "backward"]
    if not backward:
        return 0.0
    alone = replace(memory, moments=tuple(replace(moment, gradients_bytes=0.0) for moment in backward[:1]))
    # Activations of the turn may be fewer than those of the fullest moment: they do not count.
    alone = replace(alone, moments=tuple(replace(m, bytes_per_example=0.0) for m in alone.moments))
    return alone.needed(workers=shards, sharding="parameters", held={"backward": 0.0}).total_bytes


def known_memory(graph: StepGraph) -> StepMemory | None:
    """The step's memory with its optimizer's float32 state; None where it is not known."""
    return None if graph.memory is None else graph.memory.with_masters()


def _of_parameters(graph: StepGraph) -> StepMemory:
    gradients = float(graph.parameter_bytes[graph.produced].sum())
    backward = MemoryMoment(
        phase="backward", gradients_bytes=gradients, fixed_bytes=0.0, bytes_per_example=0.0
    )
    forward = MemoryMoment(phase="forward", gradients_bytes=0.0, fixed_bytes=0.0, bytes_per_example=0.0)
    return StepMemory(
        batch_size=graph.batch_size,
        parameters_bytes=float(graph.parameter_bytes.sum()),
        gradients_bytes=gradients,
        optimizer_bytes=0.0,
        moments=(forward, backward),
    )
