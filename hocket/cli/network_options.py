"""Options that describe a network, and its file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hocket.cli.name_options import complete_pattern
from hocket.cli.node_options import GpuNodeOptions
from hocket.cli.panels import NETWORK, option
from hocket.cli.printing import note, warn
from hocket.errors import HocketError
from hocket.network import NetworkFile, PatternChoice, load_network, parse_bytes


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """Options for a network whose interfaces are all there is to say of it."""

    network_file: Annotated[
        Path | None,
        option(
            "--network",
            panel=NETWORK,
            metavar="FILE",
            help="A hocket.network/1 file, as hocket network measure writes it; given options win over it.",
        ),
    ] = None
    bandwidth: Annotated[
        str | None,
        option(
            "--bandwidth",
            panel=NETWORK,
            metavar="RATE",
            help="Of every interface, each way.",
            show_default="10Gbit/s",
        ),
    ] = None
    latency: Annotated[
        str | None,
        option(
            "--latency", panel=NETWORK, metavar="TIME", help="Startup of each transfer.", show_default="0s"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(GpuNodeOptions, LinkOptions):
    """Options for a network: nodes of several GPUs, parsing, and how transfers and all-reduces run on it."""

    latency: Annotated[
        str | None,
        option(
            "--latency",
            panel=NETWORK,
            metavar="TIME",
            help="Startup of each transfer.",
            show_default="0s; between nodes of several GPUs 10us",
        ),
    ] = None
    parse_alpha: Annotated[
        str | None,
        option(
            "--parse-alpha",
            panel=NETWORK,
            rare=True,
            metavar="X",
            help="Seconds a receiver spends on each byte: 1e-10.",
            show_default="0",
        ),
    ] = None
    parse_beta: Annotated[
        str | None,
        option(
            "--parse-beta",
            panel=NETWORK,
            rare=True,
            metavar="TIME",
            help="Time that a receiver spends on each message: 10us.",
            show_default="0s",
        ),
    ] = None
    pattern: Annotated[
        PatternChoice | None,
        option(
            "--pattern",
            panel=NETWORK,
            metavar="NAME",
            autocompletion=complete_pattern,
            help="Pattern of every all-reduce: ring, tree, halving-doubling (MPI's), shuffle (Caramel's), or"
            " cheapest of the four for each size.",
            show_default="ring, or NCCL's tree where that takes less",
        ),
    ] = None
    window: Annotated[
        str | None,
        option(
            "--window",
            panel=NETWORK,
            rare=True,
            metavar="SIZE|off",
            help="HTTP/2's, between workers and servers: 28MB.",
            show_default="off",
        ),
    ] = None


def read_network(path: Path) -> NetworkFile:
    """The network of a file; keys that it has by mistake are named."""
    return load_network(path, note)


def check_fits(path: Path | str, file: NetworkFile, used: Collection[str], **advice: str) -> None:
    """Warn where what was measured is far from those fits of a network's file that an answer uses.

    ``advice``: ``instead``, what else helps, as in :func:`hocket.network.fit_quality.fit_warning`.
    """
    from hocket.network.fit_quality import fit_warning

    warning = fit_warning(file, used, **advice)
    if warning is not None:
        warn(f"{path}: {warning}")


def window_bytes(window: str | None) -> float | None:
    """The bytes that ``--window`` asks for; 0.0: off, None: not given."""
    if window is None or window == "off":
        return None if window is None else 0.0
    try:
        return parse_bytes(window)
    except HocketError as error:
        raise HocketError(f"window: {error}, or off") from None
