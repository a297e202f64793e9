"""Options that several commands share, and the network they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hocket.cli.output import note
from hocket.errors import HocketError
from hocket.network import NetworkFile, PatternChoice, load_network, parse_bytes

Step = Annotated[Path, typer.Argument(metavar="STEP", help="A hocket.step/1 file (.json or .json.zst).")]
Policy = Annotated[str, typer.Option(help="Plan by this policy; an unknown name lists them all.")]
Workers = Annotated[int, typer.Option(help="Workers that train together.")]
Servers = Annotated[int, typer.Option(help="Parameter servers; parameters are spread over them by bytes.")]
NetworkPath = Annotated[
    Path | None,
    typer.Option("--network", metavar="FILE", help="A hocket.network/1 file; given options win over it."),
]
Bandwidth = Annotated[str | None, typer.Option(help="Of every interface, each way: 1.25GB/s; else 10Gbit/s.")]
Latency = Annotated[str | None, typer.Option(help="Startup of each transfer: 50us; else 0s.")]
Architecture = Annotated[
    Literal["ps", "allreduce"] | None,
    typer.Option(
        help="How gradients are exchanged; else the policy's; ps if an option is theirs; or allreduce."
    ),
]
Barrier = Annotated[
    Literal["step", "parameter"] | None,
    typer.Option(help="Parameter servers: what a worker waits for; else the policy's own."),
]
Fusion = Annotated[str, typer.Option(help="Horovod's buffer: 64MB; 0B fuses nothing.")]
PatternName = Annotated[
    PatternChoice | None,
    typer.Option(
        "--pattern",
        help="How every all-reduce runs; else as NCCL and gloo do it: ring, or NCCL's tree where that takes"
        " less. halving-doubling is MPI's, shuffle (straight to each other) Caramel's; cheapest takes the"
        " best of all four for each size, as only Caramel does.",
    ),
]
Window = Annotated[
    str | None,
    typer.Option(help="HTTP/2's, between workers and servers: 28MB, or off; else off."),
]
ParseAlpha = Annotated[str | None, typer.Option(help="Seconds a receiver spends on each byte: 1e-10.")]
ParseBeta = Annotated[str | None, typer.Option(help="What a receiver spends on each message: 10us.")]
Budget = Annotated[str, typer.Option(help="For how long search, or the exact planner, may go on: 10s.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides every random draw.")]
Timeout = Annotated[str, typer.Option(help="For how long all of it may go on: 3600s.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


def read_network(path: Path) -> NetworkFile:
    """The network of a file; keys that it has by mistake are named."""
    return load_network(path, note)


def window_bytes(window: str | None) -> float | None:
    """What ``--window`` asks for; 0.0: off, None: not given."""
    if window is None or window == "off":
        return None if window is None else 0.0
    try:
        return parse_bytes(window)
    except HocketError as error:
        raise HocketError(f"window: {error}, or off") from None


def check_servers(servers: int, architecture: str) -> None:
    """Refuse a number of servers where there are none to choose."""
    if architecture == "allreduce" and servers != 1:
        raise HocketError(f"{servers} servers: all-reduce has none to choose; leave them out")


def inputs(*paths: Path | None) -> list[Path]:
    """The files among ``paths`` that were given: no output may overwrite them."""
    return [path for path in paths if path is not None]


def check_beside_result(output: Path, *others: Path) -> None:
    """As :func:`hocket.document.check_writable`, of a command that prints its result: a file beside it."""
    from hocket.document import check_writable, is_standard_output

    if is_standard_output(output):
        raise HocketError(f"{output}: standard output is for the result; name a file")
    check_writable(output, *others)


def check_apart(one: Path, other: Path, what: str) -> None:
    """Refuse two outputs in one file, which would hold the last of them."""
    if one.resolve() == other.resolve():
        raise HocketError(f"{one}: is to be both {what}; name two files")


def fusion_bytes_of(fusion: str) -> int:
    """The buffer that ``--fusion`` asks for, in whole bytes."""
    return int(parse_bytes(fusion))
