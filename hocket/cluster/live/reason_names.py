"""Names in reasons: of GPUs, of nodes, and of the jobs there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hocket.cluster.engine.records import Ints
from hocket.cluster.live.context import ManagerContext
from hocket.cluster.live.devices import shared_out
from hocket.text import listed

MOST_NAMED = 3


class ClusterNames:
    """Names of what there is in a manager's cluster."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context

    def gpu(self, gpu: int) -> str:
        """A GPU, with its node."""
        server, slot = divmod(gpu, self._context.cluster.gpus_per_server)
        node = self._context.nodes[server]
        ids = shared_out(self._context.nodes, self._context.cluster.gpus_per_server)[server]
        return f"{node.name} GPU {ids[slot] if node.devices and slot < len(ids) else slot}"

    def nodes_of(self, gpus: Ints) -> str:
        """The nodes that these GPUs are in."""
        servers = np.unique(gpus // self._context.cluster.gpus_per_server)
        return named([self._context.nodes[server].name for server in servers.tolist()])

    def residents(self, gpus: Sequence[int]) -> list[str]:
        """The jobs on any of these GPUs."""
        wanted = set(gpus)
        there = [job for job, run in self._context.runs.items() if not wanted.isdisjoint(run.record.gpus)]
        return there or ["another program"]


def named(names: Iterable[str], num: int | None = None) -> str:
    """All of a few names; of more the first ones and how many there are besides.

    ``num``: how many there are, where ``names`` are the first ones alone.
    """
    found = list(names)
    num = len(found) if num is None else num
    if num <= MOST_NAMED:
        return listed(found[:num])
    return listed([*found[: MOST_NAMED - 1], f"{num - MOST_NAMED + 1} others"])
