"""The nodes of a Ray cluster: an actor on each starts ranks as processes of that machine and watches them.

An actor that dies is started again by Ray, and finds its ranks in its folder: they go on meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hocket.cluster.live.nodes import Node, NodeError
from hocket.errors import HocketError
from hocket.launch.ranks import Ranks

_ANSWER_S = 30.0
_TRIES = 5


class RankActor:
    """What runs on a node: :class:`hocket.launch.ranks.Ranks`, and a question or two about the machine."""

    def __init__(self, folder: str) -> None:
        self._ranks = Ranks(folder)

    def free_port(self, host: str) -> int:
        """A port of ``host`` that nobody listens at."""
        with socket.create_server((host, 0)) as unused:
            return int(unused.getsockname()[1])

    def start(self, key: str, command: list[str], environment: dict[str, str], folder: str) -> str:
        """Start a rank; why it cannot be, or ""."""
        try:
            self._ranks.start(key, command, environment, folder)
        except OSError as error:
            return str(error)
        return ""

    def conditions(self) -> dict[str, int | None]:
        """Of every rank that was started here its status, None while it runs."""
        return self._ranks.conditions()

    def stop(self, key: str) -> None:
        """Ask a rank to end, and make it some seconds later."""
        self._ranks.stop(key)

    def output(self, key: str) -> str:
        """The end of what a rank printed."""
        return self._ranks.output(key)

    def forget(self, key: str) -> None:
        """A rank that has ended is not asked about any more."""
        self._ranks.forget(key)

    def sees(self, path: str) -> bool:
        """Whether a file of the manager's machine is one of this machine's."""
        return Path(path).exists()


class RayNode:
    """A node of a Ray cluster."""

    def __init__(self, name: str, address: str, actor: Any, *, shares_files: bool) -> None:
        self.name, self.address, self.shares_files = name, address, shares_files
        self._actor = actor

    async def free_port(self) -> int:
        """A port that nobody listens at."""
        return int(await self._answered(self._actor.free_port.remote(self.address)))

    async def start(
        self, key: str, command: Sequence[str], environment: Mapping[str, str], folder: str
    ) -> None:
        """Start a rank; nothing happens where it was started before."""
        why = await self._answered(self._actor.start.remote(key, list(command), dict(environment), folder))
        if why:
            raise NodeError(f"{self.name}: {why}")

    async def conditions(self) -> dict[str, int | None]:
        """Of every rank that was started here its status, None while it runs."""
        found: dict[str, int | None] = await self._answered(self._actor.conditions.remote())
        return found

    async def stop(self, key: str) -> None:
        """Ask a rank to end, and make it some seconds later."""
        await self._answered(self._actor.stop.remote(key))

    async def output(self, key: str) -> str:
        """The end of what a rank printed."""
        return str(await self._answered(self._actor.output.remote(key)))

    async def forget(self, key: str) -> None:
        """A rank that has ended is not asked about any more."""
        await self._answered(self._actor.forget.remote(key))

    async def _answered(self, answer: Awaitable[Any]) -> Any:
        from ray.exceptions import RayError

        try:
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        except (RayError, TimeoutError) as error:
            raise NodeError(f"{self.name} does not answer: {str(error).partition(chr(10))[0]}") from None


def ray_nodes(ray: Any, folder: Path, count: int | None) -> list[Node]:
    """``count`` nodes, or one of each machine, of the Ray cluster that ``ray`` is connected to.

    Where there is one machine it is all of them; else no more are taken than there are.

    Raises
    ------
    HocketError
        When the cluster has fewer machines.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = sorted((n for n in ray.nodes() if n["Alive"]), key=lambda n: str(n["NodeManagerAddress"]))
    wanted = len(alive) if count is None else count
    if len(alive) == 1:
        alive *= wanted
    if wanted > len(alive):
        raise HocketError(
            f"{wanted} servers, and the Ray cluster has {len(alive)} nodes; give --servers {len(alive)}"
        )
    probe = folder.resolve() / "token"
    actor_of = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=_TRIES)(RankActor)
    nodes: list[Node] = []
    for place, machine in enumerate(alive[:wanted]):
        pinned = NodeAffinitySchedulingStrategy(machine["NodeID"], soft=False)
        # Where ranks are kept track of must not depend on who asks, and is a folder of that machine.
        kept = folder.resolve() / f"ray{place}"
        actor = actor_of.options(scheduling_strategy=pinned).remote(str(kept))
        shares = bool(ray.get(actor.sees.remote(str(probe))))
        address = str(machine["NodeManagerAddress"])
        nodes.append(RayNode(f"node{place}", address, actor, shares_files=shares))
    return nodes
