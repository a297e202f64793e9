"""What travels in a step with parameter servers: the plan's transfers, cut by where parameters live."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hocket.errors import HocketError
from hocket.graph import Plan, StepGraph
from hocket.graph.csr import Indices
from hocket.graph.flat_plan import flatten
from hocket.network import assign_servers


@dataclass(frozen=True, kw_only=True)
class Message:
    """What of transfer number ``place`` of the plan lives on ``server``."""

    place: int
    server: int
    parameters: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The messages of a worker's step, in the plan's order.

    ``listed``: pushes leave strictly in their order, else the first listed of those that are ready.
    """

    pulls: tuple[Message, ...]
    pushes: tuple[Message, ...]
    listed: bool
    drawn_anew: bool
    seed: int

    def pull_order(self, worker: int, step: int) -> list[int]:
        """Pulls in the order in which a worker's step gets them, drawn where the policy leaves it to chance.

        Worker and servers draw the same.
        """
        order = list(range(len(self.pulls)))
        if self.drawn_anew:
            places = 1 + max(message.place for message in self.pulls)
            drawn = np.random.default_rng((self.seed, worker, step, 1)).permutation(places)
            order.sort(key=lambda index: int(drawn[self.pulls[index].place]))
        return order


def traffic_of(plan: Plan, graph: StepGraph, num_servers: int, *, drawn_anew: bool, seed: int) -> Traffic:
    """The messages of ``plan``, which fits ``graph``.

    Raises
    ------
    HocketError
        For what a replay does not do: a barrier per parameter, slices; and for too many servers.
    """
    sliced = any(pull.chunks > 1 for pull in plan.pulls) or any(push.chunks > 1 for push in plan.pushes)
    if plan.barrier != "step" or sliced:
        raise HocketError(
            f"policy '{plan.policy}' has slices or a barrier per parameter, which are not replayed; use"
            " another"
        )
    flat = flatten(plan, graph)
    home = assign_servers(graph.parameter_bytes.tolist(), num_servers)
    return Traffic(
        pulls=_cut(flat.pulls.batches(), graph.parameter_bytes, home),
        pushes=_cut(flat.gradients.batches(), graph.parameter_bytes, home),
        listed=flat.listed,
        drawn_anew=drawn_anew,
        seed=seed,
    )


def _cut(batches: list[Indices], size_bytes: Indices, home: Indices) -> tuple[Message, ...]:
    found = []
    for place, batch in enumerate(batches):
        for server in dict.fromkeys(home[batch].tolist()):
            own = batch[home[batch] == server]
            found.append(
                Message(
                    place=place,
                    server=server,
                    parameters=tuple(own.tolist()),
                    size_bytes=int(size_bytes[own].sum()),
                )
            )
    return tuple(found)
