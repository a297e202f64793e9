"""Options that several commands share, and the network they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hocket.errors import HocketError
from hocket.network import Network, Pattern, parse_bandwidth, parse_bytes, parse_duration

Step = Annotated[Path, typer.Argument(metavar="STEP", help="A hocket.step/1 file (.json or .json.zst).")]
Policy = Annotated[str, typer.Option(help="Plan by this policy; an unknown name lists them all.")]
Workers = Annotated[int, typer.Option(help="Workers that train together.")]
Servers = Annotated[int, typer.Option(help="Parameter servers; parameters are spread over them by bytes.")]
Bandwidth = Annotated[str, typer.Option(help="Of every interface, each way: 10Gbit/s, 1.25GB/s.")]
Latency = Annotated[str, typer.Option(help="Startup of each transfer: 50us.")]
Architecture = Annotated[
    Literal["ps", "allreduce"] | None, typer.Option(help="How gradients are exchanged; else the policy's.")
]
Barrier = Annotated[
    Literal["step", "parameter"] | None,
    typer.Option(help="Parameter servers: what a worker waits for; else the policy's own."),
]
Fusion = Annotated[str, typer.Option(help="Horovod's buffer: 64MB; 0B fuses nothing.")]
PatternName = Annotated[
    Pattern | None,
    typer.Option("--pattern", help="How every all-reduce runs; else the cheapest for its size."),
]
ParseAlpha = Annotated[str, typer.Option(help="All-reduce: seconds a receiver spends on a byte.")]
ParseBeta = Annotated[str, typer.Option(help="All-reduce: what a receiver spends on a message: 10us.")]
Budget = Annotated[str, typer.Option(help="For how long search, or the exact planner, may go on: 10s.")]
Seed = Annotated[int, typer.Option(min=0, help="Decides every random draw.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


def network_of(
    workers: int,
    servers: int,
    bandwidth: str,
    latency: str,
    parse_alpha: str = "0",
    parse_beta: str = "0s",
    pattern: Pattern | None = None,
) -> Network:
    """The network that the shared options describe."""
    try:
        parse_s_per_byte = float(parse_alpha)
    except ValueError:
        raise HocketError(f"'{parse_alpha}' is not a number of seconds per byte; give e.g. 1e-10") from None
    return Network(
        bandwidth_bps=parse_bandwidth(bandwidth),
        startup_s=parse_duration(latency),
        num_workers=workers,
        num_servers=servers,
        parse_s_per_byte=parse_s_per_byte,
        parse_s=parse_duration(parse_beta),
        pattern=pattern,
    )


def fusion_bytes_of(fusion: str) -> int:
    """The buffer that ``--fusion`` asks for, in whole bytes."""
    return int(parse_bytes(fusion))
