"""Options of a cluster that runs jobs for real: its nodes, and its manager."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hocket.cli.cluster.cluster_options import SharedOptions, measured_costs
from hocket.cli.list_options import long_duration
from hocket.cli.panels import MACHINES, MANAGER, option
from hocket.errors import HocketError
from hocket.network import parse_bytes, parse_duration

if TYPE_CHECKING:
    from hocket.cluster.cluster import Cluster
    from hocket.cluster.live.nodes import Node
    from hocket.cluster.live.retention import Retention

_Page = Annotated[
    str,
    option(
        panel=MANAGER,
        metavar="HOST:PORT",
        help="Where browsers find the page, from other machines with the token; off: nowhere.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class _NodeCounts:
    servers: Annotated[
        int | None,
        option(
            panel=MACHINES,
            metavar="N",
            help="Nodes; else all of the lab or the Ray cluster, or 1 on this machine.",
        ),
    ] = None
    gpus_per_server: Annotated[
        int | None,
        option(
            panel=MACHINES,
            metavar="N",
            help="GPUs of each node, or slots for processes where it has none.",
            show_default="all that nodes have, or 1",
        ),
    ] = None
    gpus: Annotated[
        str | None,
        option(
            panel=MACHINES,
            metavar="IDS",
            help="GPUs of this machine that jobs get: 0,2,5; with their types: 0:a100,2:v100.",
            show_default="those of CUDA_VISIBLE_DEVICES, or all",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class _NodePlaces:
    network_file: Annotated[
        Path | None,
        option(
            "--network",
            panel=MACHINES,
            rare=True,
            metavar="FILE",
            help="A hocket.network/1 file with a measured all-reduce.",
        ),
    ] = None
    engine: Annotated[
        Literal["processes", "ray"],
        option(panel=MACHINES, help="Processes of this machine, or of a Ray cluster's."),
    ] = "processes"
    address: Annotated[
        str | None,
        option(
            panel=MACHINES,
            rare=True,
            metavar="HOST:PORT",
            help="Of the Ray cluster to join, with --engine ray.",
            show_default="one is started",
        ),
    ] = None
    nodes_within: Annotated[
        str | None,
        option(
            panel=MACHINES,
            rare=True,
            metavar="TIME",
            help="Wait so long, 2min, until Ray has --servers nodes.",
            show_default="they are there",
        ),
    ] = None
    lab: Annotated[
        str | None,
        option(panel=MACHINES, metavar="NAME", help="Run in the nodes of this lab (hocket lab up)."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NodeOptions(_NodePlaces, SharedOptions, _NodeCounts):
    """Options for the nodes of a cluster: how many, with what in them, and where they are."""

    def share_gpus(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """``nodes``, each with its number of GPUs: as asked, else those of its machine, split evenly."""
        from hocket.cluster.live.devices import split_evenly

        if self.gpus_per_server is None:
            for node, slots in zip(nodes, split_evenly(nodes), strict=True):
                node.slots = slots
        return nodes

    def cluster(self, nodes: Sequence[Node]) -> Cluster:
        """The cluster of ``nodes``, as the simulator has it: each as large as the largest of them."""
        from hocket.cluster.cluster import Cluster
        from hocket.cluster.live.devices import types_of_slots

        largest = max(node.slots or 1 for node in nodes)
        gpus_per_server = largest if self.gpus_per_server is None else self.gpus_per_server
        measured = {} if self.network_file is None else measured_costs(self.network_file)
        return Cluster(
            num_servers=len(nodes),
            gpus_per_server=gpus_per_server,
            gpu_types=types_of_slots(nodes, gpus_per_server),
            gpu_memory_bytes=parse_bytes(self.memory),
            **measured,
        )


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """Options for a cluster's manager: where it is found, and how it takes failures."""

    listen: Annotated[
        str,
        option(
            panel=MANAGER,
            metavar="HOST:PORT",
            help="Where ranks on other machines and commands reach the manager.",
        ),
    ] = "127.0.0.1:0"
    page: _Page = "127.0.0.1:0"
    restarts: Annotated[
        int,
        option(
            panel=MANAGER, metavar="N", min=0, help="Further tries of a job of which a signal ended a rank."
        ),
    ] = 3
    lost_after: Annotated[
        str,
        option(
            panel=MANAGER,
            rare=True,
            metavar="TIME",
            help="Of silence of a node, until its jobs are tried again elsewhere.",
        ),
    ] = "60s"
    keep_output: Annotated[
        str,
        option(
            panel=MANAGER,
            rare=True,
            metavar="TIME",
            help="For how long what ended ranks printed stays: 24h, 7d.",
        ),
    ] = "7d"
    output_size: Annotated[
        str,
        option(
            panel=MANAGER,
            rare=True,
            metavar="SIZE",
            help="Of such output, of each node; the oldest goes first.",
        ),
    ] = "1GB"
    show_over: Annotated[
        str,
        option(
            panel=MANAGER,
            rare=True,
            metavar="TIME",
            help="For how long status and page show jobs that are over: 1h, 2d.",
        ),
    ] = "1h"

    def retention(self) -> Retention:
        """The time and the room that jobs have when they are over."""
        from hocket.cluster.live.retention import Retention

        return Retention(
            shown_s=long_duration(self.show_over, "--show-over"),
            output_s=long_duration(self.keep_output, "--keep-output"),
            output_bytes=parse_bytes(self.output_size),
        )

    def lost_after_s(self) -> float:
        """The seconds of ``--lost-after``."""
        found = parse_duration(self.lost_after)
        if found <= 0:
            raise HocketError(f"--lost-after {self.lost_after} is over at once; give e.g. 60s")
        return found


@dataclass(frozen=True, kw_only=True)
class PassingManagerOptions(ManagerOptions):
    """Options for a manager that ends with its jobs: without a page, and its folder is kept on request."""

    page: _Page = "off"
    state: Annotated[
        Path | None,
        option(panel=MANAGER, metavar="FOLDER", help="Keep the cluster there, and go on if it is there."),
    ] = None
