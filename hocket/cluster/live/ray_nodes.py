"""The nodes of a Ray cluster: an actor on each starts ranks as processes of that machine and watches them.

An actor that dies is started again, by Ray or by us, and finds its ranks in its folder: they go on meanwhile.
The machine of each node is kept in the cluster's folder, so a node is the same one whatever address and
number Ray gives its machine the next time; one that is not there counts as one that does not answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hocket.cluster.live.devices import PART
from hocket.cluster.live.nodes import WITHHELD, AbsentError, Node, NodeError, UnfitError, text_of
from hocket.cluster.live.ray_machines import (
    ActorMachine,
    alive,
    devices_of,
    keep_types,
    kept_types,
    machine_seeing,
    machines_of,
    names_of,
    type_in_ray,
)
from hocket.cluster.live.ray_reservation import reserve_gpus
from hocket.errors import HocketError
from hocket.launch.gate import CHECKPOINT_VARIABLE
from hocket.launch.rank_logs import LogPart, LogPosition
from hocket.launch.rank_processes import Ranks
from hocket.ports import free_port
from hocket.text import listed

_ANSWER_S = 30.0
_FIRST_ANSWER_S = 180.0
"""For the actors of a manager that begins: a machine may have to load all of Python over a network."""
_TRIES = 5


class RankActor:
    """The process on a node: its ranks (:class:`hocket.launch.rank_processes.Ranks`) and its machine."""

    def __init__(self, folder: str) -> None:
        self._ranks = Ranks(folder, WITHHELD)

    def machine(self, path: str) -> ActorMachine:
        """A description of this machine; ``path``: of the manager's token."""
        return machine_seeing(path)

    def free_port(self, host: str) -> int:
        """A port of ``host`` that nobody listens at."""
        return free_port(host)

    def start(self, key: str, command: list[str], environment: dict[str, str], folder: str) -> str:
        """Start a rank; why it cannot be, or ""."""
        try:
            if checkpoint := environment.get(CHECKPOINT_VARIABLE):  # this machine may have other disks
                Path(checkpoint).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._ranks.start(key, command, environment, folder)
        except (OSError, ValueError) as error:  # a null byte in a command is a ValueError
            return str(error)
        return ""

    def conditions(self) -> dict[str, int | None]:
        """Of every rank that was started here its status, None while it runs."""
        return self._ranks.conditions()

    def stop(self, key: str, grace_s: float) -> None:
        """Ask a rank to end, and make it so much later."""
        self._ranks.stop(key, grace_s)

    def output(self, key: str) -> str:
        """The end of what a rank printed."""
        return self._ranks.output(key)

    def forget(self, key: str) -> None:
        """A rank that has ended is not asked about any more."""
        self._ranks.forget(key)

    def log(self, key: str, position: LogPosition) -> LogPart | None:
        """The part of a rank's output that begins at ``position``; None where there is no such rank."""
        return self._ranks.log(key, position)

    def tidy(self, keep_s: float, most_bytes: float) -> None:
        """Remove what ended ranks left if that is older than ``keep_s``, or beyond ``most_bytes``."""
        self._ranks.tidy(keep_s, most_bytes)

    def text(self, path: str) -> str:
        """The content of a small file here, "" where there is none."""
        return text_of(path)


class RayNode:
    """A node of a Ray cluster, on the machine of that host name, address, or id in Ray.

    ``ranks_folder``: the folder of that machine in which its ranks are kept track of; ``token``: the file by
    which we find out whether it has this machine's files; ``held``: how many GPUs all nodes on that machine
    have, which are held in Ray, 0: none are. ``type``: of its GPUs, "" where Ray does not say it. ``ray_id``:
    that of the Ray node that it was last on, "" before.
    """

    def __init__(self, ray: Any, name: str, machine: str, ranks_folder: Path, token: Path) -> None:
        self.held = 0
        self.name, self.address, self.python = name, "", sys.executable
        self.shares_files, self.here = True, False
        self.machine = name
        self.devices: tuple[str, ...] | None = None
        self.type = self.ray_id = self._part = ""
        self.slots: int | None = None
        self._ray, self._host, self._ranks_folder, self._token = ray, machine, ranks_folder, token
        self._actor: Any = None
        self._reaching = asyncio.Lock()

    def reach(self, within_s: float = _ANSWER_S) -> None:
        """Have an actor there; AbsentError where Ray has no such machine now, or one that says nothing."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        found = self.ray_machine()
        pinned = NodeAffinitySchedulingStrategy(found["NodeID"], soft=False)
        made = self._ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=_TRIES)(RankActor)
        actor = made.options(scheduling_strategy=pinned).remote(str(self._ranks_folder))
        try:
            theirs: ActorMachine = self._ray.get(actor.machine.remote(str(self._token)), timeout=within_s)
        except self._ray.exceptions.GetTimeoutError:
            said = f"{self.name} does not answer: nothing from '{self._host}' within {within_s:g} s"
            raise AbsentError(f"{said}; look for what keeps it busy") from None
        ours = machine_seeing(str(self._token))
        self.address, self.python = str(found["NodeManagerAddress"]), theirs.python
        self.ray_id = str(found["NodeID"])
        self.shares_files = theirs.file_digest == ours.file_digest
        self.here = self.shares_files and theirs.boot == ours.boot
        self.machine = f"{theirs.name}{self._part}"
        self.type = type_in_ray(found) or self.type
        if self.held:
            try:
                self.devices = reserve_gpus(self._ray, found, self.cluster, self.held)
            except HocketError as error:  # other programs were quicker, and may end
                raise AbsentError(f"{self.name} does not answer: {error}") from None
        else:
            self.devices = devices_of(theirs.devices, found.get("Resources", {}).get("GPU"))
        self._actor = actor

    def be_part(self, gpus: str) -> None:
        """Be on a part of its machine, which has these GPUs alone."""
        self._part = f"{PART}{gpus}"
        self.machine += self._part

    def hold(self, count: int) -> None:
        """Hold ``count`` GPUs of its machine in Ray, where Ray has any there; raises as ``reserve_gpus``."""
        found = self.ray_machine()
        if found.get("Resources", {}).get("GPU"):
            self.devices, self.held = reserve_gpus(self._ray, found, self.cluster, count), count

    def type_of(self, device: str) -> str:
        """The type of one of its GPUs, which Ray has for all of a machine; "" where it has none."""
        return self.type

    def ray_machine(self) -> Any:
        """Its machine as Ray has it now; AbsentError where it has no such one."""
        found = [each for each in alive(self._ray) if self._host in names_of(each)]
        if not found:
            raise AbsentError(f"{self.name} does not answer: '{self._host}' is not in the Ray cluster")
        if len(found) > 1:
            addresses = listed([str(each["NodeManagerAddress"]) for each in found])
            raise AbsentError(
                f"{self.name} does not answer: '{self._host}' is {len(found)} Ray nodes now, at {addresses};"
                f" say in {self._token.with_name('ray-nodes.json')} which it is, by its address"
            )
        return found[0]

    @property
    def cluster(self) -> str:
        """A name of its cluster that no other one has."""
        return self._ranks_folder.parent.name

    def has_ranks(self) -> bool:
        """True if ranks run there, or may: it does not answer."""
        if self._actor is None:
            return True
        try:
            found: dict[str, int | None] = self._ray.get(self._actor.conditions.remote(), timeout=_ANSWER_S)
        except self._ray.exceptions.RayError:
            return True
        return None in found.values()

    async def free_port(self) -> int:
        """A port that nobody listens at."""
        if self._actor is None:  # its address is not known before
            await self._call_actor("conditions")
        return int(await self._call_actor("free_port", self.address))

    async def start(
        self, key: str, command: Sequence[str], environment: Mapping[str, str], folder: str
    ) -> None:
        """Start a rank; nothing happens where it was started before."""
        why = await self._call_actor("start", key, list(command), dict(environment), folder)
        if why:
            raise UnfitError(f"{self.name}: {why}")

    async def conditions(self) -> dict[str, int | None]:
        """Of every rank that was started here its status, None while it runs."""
        found: dict[str, int | None] = await self._call_actor("conditions")
        return found

    async def stop(self, key: str, grace_s: float) -> None:
        """Ask a rank to end, and make it so much later."""
        await self._call_actor("stop", key, grace_s)

    async def output(self, key: str) -> str:
        """The end of what a rank printed."""
        return str(await self._call_actor("output", key))

    async def forget(self, key: str) -> None:
        """A rank that has ended is not asked about any more."""
        await self._call_actor("forget", key)

    async def log(self, key: str, position: LogPosition) -> LogPart | None:
        """The part of a rank's output that begins at ``position``; None where there is no such rank."""
        found: LogPart | None = await self._call_actor("log", key, position)
        return found

    async def tidy(self, keep_s: float, most_bytes: float) -> None:
        """Remove what ended ranks left if that is older than ``keep_s``, or beyond ``most_bytes``."""
        await self._call_actor("tidy", keep_s, most_bytes)

    async def text(self, path: str) -> str:
        """The content of a small file there, "" where there is none."""
        return str(await self._call_actor("text", path))

    async def _call_actor(self, method: str, *arguments: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            async with asyncio.timeout(_ANSWER_S):
                async with self._reaching:
                    if self._actor is None:
                        await asyncio.to_thread(self.reach)
                return await getattr(self._actor, method).remote(*arguments)
        except (RayError, TimeoutError) as error:
            said = f"{self.name} does not answer: {str(error).partition(chr(10))[0]}"
            if isinstance(error, RayTaskError):
                raise NodeError(said) from None
            self._actor = None  # its machine may come back as another node of Ray's
            raise AbsentError(said) from None


def ray_nodes(ray: Any, folder: Path, count: int | None) -> list[Node]:
    """The nodes, of the Ray cluster that ``ray`` is connected to, of the cluster in ``folder``.

    Raises
    ------
    HocketError
        When there are not as many, or none of them answers.
    """
    token = folder.resolve() / "token"
    # Other clusters, of other machines, may have folders of the same name.
    kept = folder.resolve() / "ray" / hashlib.sha256(text_of(str(token)).encode()).hexdigest()[:16]
    nodes: list[Node] = []
    absent: list[str] = []
    types = kept_types(folder)
    for name, machine in machines_of(alive(ray), folder, count).items():
        node = RayNode(ray, name, machine, kept / name, token)
        node.type = types.get(name, "")  # where it does not answer it has what it had
        nodes.append(node)
        try:
            node.reach(_FIRST_ANSWER_S)
        except (NodeError, ray.exceptions.RayError) as error:
            absent.append(str(error))
    if len(absent) == len(nodes):
        raise HocketError(f"{absent[0]}; {folder}/ray-nodes.json says which machine each node is")
    keep_types(folder, {node.name: node.type for node in nodes if isinstance(node, RayNode)})
    return nodes
