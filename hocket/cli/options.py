"""Options that several commands share, and the network they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hocket.network import Network, parse_bandwidth, parse_duration

Step = Annotated[Path, typer.Argument(metavar="STEP", help="A hocket.step/1 file (.json or .json.zst).")]
Workers = Annotated[int, typer.Option(help="Workers that train together.")]
Servers = Annotated[int, typer.Option(help="Parameter servers; parameters are spread over them by bytes.")]
Bandwidth = Annotated[str, typer.Option(help="Of every interface, each way: 10Gbit/s, 1.25GB/s.")]
Latency = Annotated[str, typer.Option(help="Startup of each transfer: 50us.")]
Architecture = Annotated[Literal["ps"], typer.Option(help="How gradients are exchanged.")]
Seed = Annotated[int, typer.Option(min=0, help="Decides every random draw.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


def network_of(workers: int, servers: int, bandwidth: str, latency: str) -> Network:
    """The network that the shared options describe."""
    return Network(
        bandwidth_bps=parse_bandwidth(bandwidth),
        startup_s=parse_duration(latency),
        num_workers=workers,
        num_servers=servers,
    )
