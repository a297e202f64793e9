"""Options for machines of several GPUs, and the file that describes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hocket.cli.panels import NETWORK, option


@dataclass(frozen=True, kw_only=True)
class GpuNodeOptions:
    """Options for a network of two levels: GPUs in nodes, and nodes in racks."""

    cluster: Annotated[
        Path | None,
        option(
            "--cluster",
            panel=NETWORK,
            metavar="FILE",
            help="A hocket.cluster/1 file; given options win over it.",
        ),
    ] = None
    gpus_per_node: Annotated[
        int | None,
        option(
            "--gpus-per-node",
            panel=NETWORK,
            metavar="N",
            help="Workers that share a node, each a GPU.",
            show_default="1",
        ),
    ] = None
    intra_bandwidth: Annotated[
        str | None,
        option(
            "--intra-bandwidth",
            panel=NETWORK,
            metavar="RATE",
            help="Of a GPU's links inside of its node, one way: 450GB/s.",
            show_default="by the step's device",
        ),
    ] = None
    nics_per_node: Annotated[
        int | None,
        option(
            "--nics-per-node",
            panel=NETWORK,
            metavar="N",
            help="NICs of a node, of --bandwidth each.",
            show_default="1",
        ),
    ] = None
    intra_latency: Annotated[
        str | None,
        option(
            "--intra-latency",
            panel=NETWORK,
            rare=True,
            metavar="TIME",
            help="From one GPU to the next inside of a node: 1us over PCIe.",
            show_default="600ns",
        ),
    ] = None
    in_switch: Annotated[
        bool | None,
        option(
            "--in-switch",
            panel=NETWORK,
            rare=True,
            help="Switches inside of a node sum up (NVLink SHARP, from the H100 on).",
            show_default=False,
        ),
    ] = None
    machines_per_rack: Annotated[
        int | None,
        option(
            "--machines-per-rack",
            panel=NETWORK,
            rare=True,
            metavar="N",
            help="All-reduce: machines (nodes) fill one rack after the other.",
            show_default="all in one",
        ),
    ] = None
    oversubscription: Annotated[
        float | None,
        option(
            "--oversubscription",
            panel=NETWORK,
            rare=True,
            metavar="X",
            help="Of each rack's uplink: its machines' bandwidths over its own.",
            show_default="1",
        ),
    ] = None
