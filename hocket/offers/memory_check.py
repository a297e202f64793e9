"""The memory of a card against what a step needs of it."""

from __future__ import annotations

from hocket.datasheets import DEVICES
from hocket.graph import StepGraph
from hocket.network import Network
from hocket.planner import plan
from hocket.sim.sharded_evaluator import ShardedEvaluator
from hocket.text import scaled_text


def largest_fitting(graph: StepGraph, card: str, cards: int) -> int | None:
    """The largest batch with which the step fits its card, 0 for none; None where that is not known."""
    if graph.memory is None or card not in DEVICES or not graph.memory.scales:
        return None
    return graph.memory.largest_batch(DEVICES[card].capacity_bytes, workers=cards)


def fits_sharded(graph: StepGraph, card: str, network: Network) -> bool:
    """True if the step fits its card, sharded over all of ``network`` in FSDP2's default units."""
    if graph.memory is None or card not in DEVICES or network.num_workers == 1:
        return False
    return sharded_bytes(graph, network) <= DEVICES[card].memory_bytes


def sharded_bytes(graph: StepGraph, network: Network) -> float:
    """The bytes that a card needs for the step, sharded over all of ``network`` in FSDP2's default units."""
    return ShardedEvaluator(graph, network).memory_bytes(plan(graph, network, "fsdp"))


def largest_sharded(graph: StepGraph, card: str, cards: int) -> int:
    """About the largest batch that fits, sharded over so many cards; 0 for none, or unknown."""
    if graph.memory is None or card not in DEVICES or not graph.memory.scales or cards == 1:
        return 0
    memory = graph.memory.with_masters()
    return memory.largest_batch(DEVICES[card].memory_bytes, workers=cards, sharding="parameters")


def misfit(graph: StepGraph, card: str, cards: int, *, tried_sharded: bool = False) -> str:
    """A clause on a step that does not fit its card, with the largest batch that does; "" for one that fits.

    Also "" where the step does not say what it needs, or no datasheet what the card has. ``tried_sharded``:
    it was found not to fit sharded over the cards, either.
    """
    if graph.memory is None or card not in DEVICES:
        return ""
    held = DEVICES[card].capacity_bytes
    needed = graph.memory.needed(workers=cards).total_bytes
    if needed <= held:
        return ""
    largest = largest_fitting(graph, card, cards)
    shown = f"a batch of {graph.batch_size} needs {scaled_text(needed, 'B')} of its {scaled_text(held, 'B')}"
    if largest is None:
        return f"{shown}; give a smaller batch"
    if largest:
        return f"{shown}; {largest} fit"
    if tried_sharded and cards > 1:
        return f"{shown}, and not even one example fits, whole or sharded over {cards} cards (FSDP2)"
    sharded = (
        graph.memory.needed(1, workers=cards, sharding="parameters").total_bytes if cards > 1 else held + 1
    )
    over = "; sharded over all its cards (FSDP), one example would fit" if sharded <= held else ""
    return f"{shown}, and not even one example fits{over}"
