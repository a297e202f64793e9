"""A lab: nodes that can be made, found, used and removed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from hocket.ending import TERMINATE, end_processes
from hocket.errors import HocketError, UnknownNameError
from hocket.lab import links
from hocket.lab.holders import has_ended, own_holder
from hocket.lab.links import LabNode
from hocket.lab.node_processes import RankResult, run_ranks
from hocket.lab.processors import processors_of_nodes, starting_on
from hocket.lab.traffic_shaping import segments_together
from hocket.signals import uninterrupted

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)
_FEWEST, _MOST = 2, 250
_SLOWEST_BPS, _FASTEST_BPS = 1e6, 100e9


class Lab:
    """A cluster of ``nodes`` machines on this one, each on a link of ``rate_bps`` bits per second each way.

    A context manager: up on entering, down on leaving, also when an exception leaves; what a process that was
    killed within its block left is removed when a lab of that name is next made. A link that has been idle
    lets half a millisecond of its rate through at once (from 3 to 262 kB), then its rate holds; those at its
    other end share it evenly (up to 32, then some share a part), each its part between its connections, up to
    64 without loss, and nothing else delays them. Nodes share this machine's processors and files, and reach
    nothing but each other.

    tso_bytes: what TCP hands to a link at once at most; None: a quarter of a millisecond at its rate (2 to 44
    segments), which keeps shares even from the first packet on. 65,536, as network cards take it, costs
    processors less (at 250 Mbit/s 4% of two, not 14%): for AllReduce, whose links nobody shares.

    Raises
    ------
    HocketError
        For a number of nodes outside 2 to 250, a rate outside 1 Mbit/s to 100 Gbit/s, tso_bytes outside 2,896
        to 65,536, or a name that is not 1 to 32 letters, digits, ``_`` and ``-``.
    """

    def __init__(
        self, *, nodes: int, rate_bps: float, name: str = "hocket", tso_bytes: float | None = None
    ) -> None:
        check_name(name)
        if not _FEWEST <= nodes <= _MOST:
            raise HocketError(f"{nodes} nodes make no lab; choose {_FEWEST} to {_MOST}")
        if not _SLOWEST_BPS <= rate_bps <= _FASTEST_BPS:
            raise HocketError(
                f"a rate of {rate_bps:g} bit/s is none for a lab; choose 1 Mbit/s to 100 Gbit/s"
            )
        self.name = name
        self.rate_bps = float(rate_bps)
        self._together = segments_together(rate_bps, tso_bytes)
        self.nodes: tuple[LabNode, ...] = tuple(links.node_of(name, index) for index in range(nodes))

    @classmethod
    def find(cls, name: str = "hocket") -> Lab:
        """The lab of this name that is up, whichever process made it.

        Raises
        ------
        UnknownNameError
            When there is none of this name.
        HocketError
            When it is not whole, because what made it was killed, or part of it was removed by hand.
        """
        links.check_machine()
        check_name(name)
        found = links.existing()
        if name not in found:
            valid = sorted(found) or [f"none yet, 'hocket lab up --name {name}' makes it"]
            raise UnknownNameError("lab", name, valid)
        lab = _whole(name, found[name])
        if lab is None:
            raise HocketError(
                f"lab '{name}' is not whole; remove what is left: hocket lab down --name {name}"
            )
        return lab

    def __enter__(self) -> Lab:
        self._make(own_holder())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        remove(self.name)

    def up(self) -> None:
        """Make the lab; where that fails or is interrupted, nothing of it is left.

        A line on standard error says so where connections do not share links as labs have it elsewhere.

        Raises
        ------
        HocketError
            When a lab of this name exists, and when user, tools or kernel cannot make one.
        """
        self._make(None)

    def _make(self, holder: str | None) -> None:
        links.check_machine()
        if (earlier := links.holder_of(self.name)) is not None and has_ended(earlier):
            remove(self.name)
        claimed = False
        try:
            with uninterrupted():
                links.claim(self.name, holder)
                claimed = True
            lacks = links.build(self.name, self.nodes, self.rate_bps, self._together)
        except BaseException:
            if claimed:
                remove(self.name)
            raise
        for lack in lacks:
            told = f"hocket: lab '{self.name}' is on a kernel that {lack} and make the lab anew"
            print(told, file=sys.stderr, flush=True)

    def node(self, name: str) -> LabNode:
        """The node of this name; UnknownNameError where there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise UnknownNameError(f"lab '{self.name}': node", name, [node.name for node in self.nodes])

    def pids(self) -> dict[str, list[int]]:
        """The processes in each node, by the node's name."""
        found = links.pids_in(node.namespace for node in self.nodes)
        return {node.name: found[node.namespace] for node in self.nodes}

    def lack(self, node: LabNode) -> str:
        """A line that says how to have ``node``, which is not there."""
        name, rate = self.name, f"{self.rate_bps / 1e6:g}mbit"
        up = f"hocket lab up --name {name} --nodes {len(self.nodes)} --rate {rate}"
        if links.is_there(links.switch_of(name)):
            return f"lab '{name}' lacks {node.name}; make it anew: hocket lab down --name {name}, then {up}"
        return f"lab '{name}' is not up; make it first: {up}"

    def command(
        self, node: LabNode, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """The command and the environment with which ``argv`` runs in ``node``.

        The environment is this process's, the node's interface for gloo and TensorPipe, and ``env``.

        Raises
        ------
        HocketError
            When there is no such command, or the lab is not up.
        """
        if not links.is_there(node.namespace):
            raise HocketError(self.lack(node))
        interface = {"GLOO_SOCKET_IFNAME": node.interface, "TP_SOCKET_IFNAME": node.interface}
        environment = {**os.environ, **interface, **(env or {})}
        if not argv:
            raise HocketError("there is no command to run; give one, on the command line after --")
        if "/" not in argv[0] and shutil.which(argv[0], path=environment.get("PATH", os.defpath)) is None:
            raise HocketError(f"command '{argv[0]}' is not on the PATH; give its path, or change the PATH")
        return [links.tool_path("ip"), "netns", "exec", node.namespace, *argv], environment

    def popen(
        self, node: LabNode, argv: Sequence[str], env: Mapping[str, str] | None = None, **popen_kwargs: Any
    ) -> subprocess.Popen[Any]:
        """Start a command in ``node``, in a session of its own unless ``popen_kwargs`` say otherwise.

        The process is the command itself, not a wrapper, and ``os.killpg(process.pid, ...)`` reaches its
        children too. It ends with the lab at the latest. ``env`` adds to this process's environment.

        Raises
        ------
        HocketError
            When there is no such command, or the lab is not up.
        """
        command, environment = self.command(node, argv, env)
        return subprocess.Popen(command, **{"env": environment, "start_new_session": True, **popen_kwargs})

    def processors(self) -> list[set[int]]:
        """The parts of the processors that this process may use, one for each node."""
        return processors_of_nodes(sorted(os.sched_getaffinity(0)), len(self.nodes))

    def run_all(
        self,
        argv: Sequence[str],
        timeout_s: float | None = 600.0,
        env: Mapping[str, str] | None = None,
        grace_s: float = 10.0,
        output: Literal["prefixed"] | None = None,
        own_processors: bool = False,
    ) -> tuple[RankResult, ...]:
        """Run one rank of ``argv`` on each node, with the environment that torchrun gives a rank.

        That is RANK, LOCAL_RANK and the like, a free port of node 0 to meet at, where rank 0 makes the store,
        a TORCHELASTIC_RUN_ID of this run, and one thread for OpenMP unless this process's environment says
        otherwise. ``env`` wins over all of it. Once a rank fails, the others are ended ``grace_s`` later.
        ``output="prefixed"`` passes on each line as it comes, behind its node's name; None keeps them for the
        results, which are in the order of nodes, failed ranks included. ``own_processors`` gives each node
        its part of :meth:`processors`.

        Raises
        ------
        HocketError
            When there is no such command, when ranks have not ended after ``timeout_s`` (all are ended then;
            None: wait for ever), and when the lab is not up.
        """
        if timeout_s is not None and not timeout_s > 0:
            raise HocketError(f"a timeout of {timeout_s:g} s leaves no time; give a positive one")
        if not grace_s >= 0:
            raise HocketError(f"a grace of {grace_s:g} s is negative; give 0 or more")
        first = self.nodes[0]
        self.command(first, argv, env)  # refuses what no node can run, before any does
        shared = {
            "MASTER_ADDR": first.address,
            "MASTER_PORT": str(links.port_in(first)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "ROLE_NAME": "default",
            "TORCHELASTIC_RUN_ID": uuid.uuid4().hex,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",  # torchrun's own process serves one; we do not
            **dict.fromkeys(("WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"), str(len(self.nodes))),
        }
        # Ranks share processors; and into a pipe Python prints late, and nothing at all when it is killed.
        for name, value in (("OMP_NUM_THREADS", "1"), ("PYTHONUNBUFFERED", "1")):
            shared[name] = os.environ.get(name, value)
        parts = self.processors()

        def start(node: LabNode, mark: Mapping[str, str]) -> subprocess.Popen[bytes]:
            own = dict.fromkeys(("RANK", "GROUP_RANK", "ROLE_RANK"), str(node.index))
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            environment = {**shared, **own, **(env or {}), **mark}
            with starting_on(parts[node.index]) if own_processors else contextlib.nullcontext():
                return self.popen(node, argv, environment, **streams)

        return run_ranks(
            self.nodes, start, timeout_s=timeout_s, grace_s=grace_s, streamed=output == "prefixed"
        )


def check_name(name: str) -> None:
    """Refuse what names of namespaces cannot be made of; raises HocketError."""
    if _NAME.fullmatch(name) is None:
        raise HocketError(f"'{name}' names no lab; use 1 to 32 letters, digits, _ and -, no sign first")


def names() -> list[str]:
    """The labs that there is anything of, also what is left of one that was not made or removed wholly."""
    links.check_machine()
    return sorted(links.existing())


def labs() -> list[Lab]:
    """The labs that are up."""
    links.check_machine()
    found = (_whole(name, indices) for name, indices in sorted(links.existing().items()))
    return [lab for lab in found if lab is not None]


def remove(name: str) -> bool:
    """End the processes in a lab and remove all that there is of it; whether there was anything.

    Processes get SIGTERM, and SIGKILL 5 s later. This cannot be interrupted, and takes that long at most.

    Raises
    ------
    HocketError
        When a process does not even end on SIGKILL.
    """
    links.check_machine()
    check_name(name)
    with uninterrupted():
        found = links.existing()
        if name not in found:
            return False
        nodes = [links.node_of(name, index) for index in sorted(found[name])]
        namespaces = [links.switch_of(name), *(node.namespace for node in nodes)]
        end_processes(
            lambda: [pid for pids in links.pids_in(namespaces).values() for pid in pids],
            TERMINATE,
            lambda: time.sleep(0.05),
        )
        links.delete(name, nodes)
    return True


def _whole(name: str, indices: set[int]) -> Lab | None:
    rate_bps = links.rate_of(name)
    if rate_bps is None or indices != set(range(len(indices))) or len(indices) != links.made_with(name):
        return None
    return Lab(nodes=len(indices), rate_bps=rate_bps, name=name)
