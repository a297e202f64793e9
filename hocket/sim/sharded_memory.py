"""Memory that a fully sharded step needs of a worker's device, as FSDP2's allocations make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hocket.graph import MemoryMoment, MemoryNeed, StepGraph, StepMemory
from hocket.sim.lowering.unit_schedule import UnitSchedule


def sharded_need(graph: StepGraph, schedule: UnitSchedule, shards: int) -> MemoryNeed:
    """The need at the fullest moment: shards, and what the schedule holds besides in the same pass.

    The fullest moment of a pass and the most that is held in it count as one, which is at most too much.
    Where the step's memory is not known, parameters and gradients alone count.
    """
    return need_of_held(graph, schedule.most_held(), shards)


def need_of_held(graph: StepGraph, most_held: Mapping[str, float], shards: int) -> MemoryNeed:
    """The need of shards, and of the most bytes that are held besides in each pass."""
    memory = known_memory(graph) or _of_parameters(graph)
    held = {phase: float(size) for phase, size in most_held.items()}
    return memory.needed(workers=shards, sharding="parameters", held={**held, "update": 0.0})


def most_within(graph: StepGraph, shards: int, limit_bytes: float) -> dict[str, float]:
    """The most bytes that may be held in each pass, besides shards, for a need within the limit; inf without.

    -1 in a pass whose need is beyond the limit with nothing held.
    """
    memory = known_memory(graph) or _of_parameters(graph)
    found = {}
    for phase in ("forward", "backward"):
        moments = tuple(moment for moment in memory.moments if moment.phase == phase)
        if not moments or limit_bytes == float("inf"):
            found[phase] = float("inf")
            continue
        alone = replace(memory, moments=moments)
        least, most = -1, 1 << 62
        while most - least > 1:
            middle = (least + most) // 2
            need = alone.needed(workers=shards, sharding="parameters", held={phase: float(middle)})
            least, most = (middle, most) if need.total_bytes <= limit_bytes else (least, middle)
        found[phase] = float(least)
    return found


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
