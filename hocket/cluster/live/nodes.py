"""Nodes that ranks run on: this machine's processes, a lab's nodes, or a Ray cluster's (in ray_nodes.py)."""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hocket.cluster.live.devices import BY_BUS, known_types, this_machine, visible_devices
from hocket.cluster.live.manager_address import TOKEN_VARIABLE
from hocket.cluster.live.nvml import gpu_types
from hocket.errors import HocketError
from hocket.lab import Lab
from hocket.lab.links import LabNode as LabNode
from hocket.lab.links import is_there, port_in
from hocket.lab.namespaces import NodeLink
from hocket.launch.control import host_towards
from hocket.launch.job import split_address
from hocket.launch.rank_logs import LogPart, LogPosition
from hocket.launch.rank_processes import Ranks, Wrap
from hocket.ports import free_port

WITHHELD = frozenset(
    (
        TOKEN_VARIABLE,
        "RAY_AUTH_MODE",
        "RAY_AUTH_TOKEN",
        "RAY_AUTH_TOKEN_PATH",
        "RAY_REDIS_PASSWORD",
        "RAY_RUNTIME_ENV_BEARER_TOKEN",
    )
)
"""Variables that ranks do not inherit: they let it command the cluster, or run code on its Ray nodes.

The mode goes with the token: a Ray that a job starts for itself would ask for one that it cannot find.
"""


class NodeError(Exception):
    """A node that is gone, or cannot do what it was asked."""


class AbsentError(NodeError):
    """A node that does not answer; it may come back."""


class FullError(NodeError):
    """A node whose disk is full; there may be room later."""


class UnfitError(NodeError):
    """A command that no node could start as it stands, or whose folder is not there."""


_UNFIT = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.E2BIG, errno.ENAMETOOLONG, errno.ELOOP)


def is_full(error: OSError) -> bool:
    """Tell whether a disk, or what a user may have of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Node(Protocol):
    """One server of the cluster; every method raises AbsentError where it cannot be reached.

    ``name`` as users call it; ``address`` where its ranks are reached, "" while that is not known; ``python``
    the interpreter there. ``shares_files``: whether it has this machine's files, ``here``: whether it is this
    machine, or a part of it, so that sockets are among them. ``machine``: which one it is on; ``devices``:
    the GPUs that this leaves to us, None where none is seen; ``slots``: how many of them it is to have, None:
    as many as every node of the cluster.
    """

    name: str
    address: str
    python: str
    shares_files: bool
    here: bool
    machine: str
    devices: tuple[str, ...] | None
    slots: int | None

    def type_of(self, device: str) -> str:
        """The type of one of its GPUs, "" where that is not known."""
        ...

    async def free_port(self) -> int:
        """A port that nobody listens at."""
        ...

    async def start(
        self, key: str, command: Sequence[str], environment: Mapping[str, str], folder: str
    ) -> None:
        """Start a rank; nothing happens where it was started before."""
        ...

    async def conditions(self) -> dict[str, int | None]:
        """Of every rank that was started here its status, None while it runs."""
        ...

    async def stop(self, key: str, grace_s: float) -> None:
        """Ask a rank to end, and make it so much later."""
        ...

    async def output(self, key: str) -> str:
        """The end of what a rank printed."""
        ...

    async def forget(self, key: str) -> None:
        """A rank that has ended is not asked about any more."""
        ...

    async def log(self, key: str, position: LogPosition) -> LogPart | None:
        """The part of a rank's output that begins at ``position``; None where there is no such rank."""
        ...

    async def tidy(self, keep_s: float, most_bytes: float) -> None:
        """Remove what ended ranks left if that is older than ``keep_s``, or beyond ``most_bytes``."""
        ...

    async def text(self, path: str) -> str:
        """The content of a small file there, "" where there is none."""
        ...


class LocalNode:
    """A node on this machine, its ranks kept track of in ``folder``; in ``place``, a lab's, where given."""

    python = sys.executable
    shares_files = here = True

    def __init__(self, name: str, folder: Path, lab: Lab | None = None, place: LabNode | None = None) -> None:
        self.name = name
        self._lab, self._place = lab, place
        self._link = None if place is None else NodeLink(place.namespace, place.interface)
        self.machine, self.devices = this_machine(), visible_devices(os.environ)
        self._types = known_types(os.environ)
        self.slots: int | None = None
        self._numbers_by_bus = len(set(self._types.values())) > 1 and "0" in self._types
        self.address = "127.0.0.1" if place is None else place.address
        wrap: Wrap | None = None
        if lab is not None and place is not None:
            wrap = functools.partial(_inside, lab, place)
        self._ranks = Ranks(folder, WITHHELD, wrap)

    def have_devices(self, types: Mapping[str, str]) -> None:
        """Take these GPUs of the machine for all, of the types that are said, whatever else says so."""
        self.devices, self._numbers_by_bus = tuple(types), True
        self._types = gpu_types() | {device: kind for device, kind in types.items() if kind}

    def type_of(self, device: str) -> str:
        """The type of one of its GPUs, "" where that is not known."""
        return self._types.get(device, "")

    async def free_port(self) -> int:
        """A port that nobody listens at."""
        if self._place is not None:
            self._check_there()
            try:
                return await asyncio.to_thread(port_in, self._place)
            except HocketError as error:
                self._check_there()  # that it has gone meanwhile is not the job's fault
                raise NodeError(f"{self.name}: {error}") from None
        return free_port(self.address)

    def _check_there(self) -> None:
        """A lab that was taken down may come back; until then its nodes are machines that are gone."""
        if self._lab is not None and self._place is not None and not is_there(self._place.namespace):
            raise AbsentError(f"{self.name} does not answer: {self._lab.lack(self._place)}")

    async def start(
        self, key: str, command: Sequence[str], environment: Mapping[str, str], folder: str
    ) -> None:
        """Start a rank; nothing happens where it was started before."""
        if self._place is None:
            environment = {"GLOO_SOCKET_IFNAME": "lo", **environment}
        if self._numbers_by_bus:
            environment = {**environment, **BY_BUS}
        try:
            self._ranks.start(key, command, environment, folder)
        except OSError as error:
            kind = UnfitError if error.errno in _UNFIT else FullError if is_full(error) else NodeError
            raise kind(f"{self.name}: {error}") from None
        except (ValueError, HocketError) as error:  # a null byte in a command is a ValueError
            self._check_there()
            raise UnfitError(f"{self.name}: {error}") from None

    async def conditions(self) -> dict[str, int | None]:
        """Of every rank that was started here its status, None while it runs."""
        # A machine answers by its link; a lab's node would without, as its files are ours.
        is_down = self._link is not None and self._link.is_down()
        self._check_there()
        if is_down:
            raise AbsentError(f"{self.name} does not answer: its link is down")
        return self._ranks.conditions()

    async def stop(self, key: str, grace_s: float) -> None:
        """Ask a rank to end, and make it so much later."""
        self._ranks.stop(key, grace_s)

    async def output(self, key: str) -> str:
        """The end of what a rank printed."""
        return self._ranks.output(key)

    async def forget(self, key: str) -> None:
        """A rank that has ended is not asked about any more."""
        self._ranks.forget(key)

    async def log(self, key: str, position: LogPosition) -> LogPart | None:
        """The part of a rank's output that begins at ``position``; None where there is no such rank."""
        return self._ranks.log(key, position)

    async def tidy(self, keep_s: float, most_bytes: float) -> None:
        """Remove what ended ranks left if that is older than ``keep_s``, or beyond ``most_bytes``."""
        await asyncio.to_thread(self._ranks.tidy, keep_s, most_bytes)

    async def text(self, path: str) -> str:
        """The content of a small file there, "" where there is none."""
        return text_of(path)


def text_of(path: str) -> str:
    """The content of a small file of this machine, "" where there is none."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def check_reachable(gate: str, nodes: Sequence[Node]) -> None:
    """Refuse a gate, at host:port, that nodes on other machines cannot reach; raises HocketError."""
    host, _ = split_address(gate)
    address = ipaddress.ip_address(host.partition("%")[0])
    if not (address.is_loopback or address.is_unspecified):
        return
    for node in nodes:
        if node.address and not node.here:
            raise HocketError(
                f"--listen {host}: {node.name} ({node.address}) is another machine and cannot ask this one "
                f"there; give the address under which it finds this machine, e.g. {_own_address(node)}:0"
            )


def _own_address(node: Node) -> str:
    try:
        return host_towards(f"{node.address}:1")
    except HocketError:
        return "10.0.0.1"


def _inside(
    lab: Lab, place: LabNode, argv: list[str], environment: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    command, told = lab.command(place, argv, environment)
    return command, told


def local_nodes(folder: Path, count: int) -> list[LocalNode]:
    """So many nodes on this machine, which share it."""
    return [LocalNode(f"node{k}", folder / f"node{k}") for k in range(count)]


def lab_nodes(folder: Path, lab: Lab) -> list[LocalNode]:
    """The nodes of a lab."""
    return [LocalNode(place.name, folder / place.name, lab, place) for place in lab.nodes]
