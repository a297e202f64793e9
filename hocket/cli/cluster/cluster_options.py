"""Options that describe a cluster, and the cluster that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hocket.cli.network_options import check_fits, read_network
from hocket.cli.panels import MACHINES, NETWORK, SCHEDULING, option
from hocket.errors import HocketError

if TYPE_CHECKING:
    from hocket.cluster.cluster import Cluster

Servers = Annotated[int, option(panel=MACHINES, metavar="N", help="Servers of the cluster.")]
GpusPerServer = Annotated[int, option(panel=MACHINES, metavar="N", help="GPUs of each server.")]
Memory = Annotated[
    str, option(panel=MACHINES, metavar="SIZE", help="Of each GPU; jobs share GPUs as far as it goes.")
]
Chunk = Annotated[
    str,
    option(
        panel=SCHEDULING,
        rare=True,
        metavar="SIZE",
        help="At whose end psrsf and srpt may give the network to another.",
    ),
]
Sharing = Annotated[
    Literal["equation5", "max-min"],
    option(
        panel=NETWORK,
        rare=True,
        help="How transfers share servers: the contention paper's Eq. 5, or max-min fairly.",
    ),
]
Racks = Annotated[
    int, option(panel=NETWORK, rare=True, metavar="N", help="With max-min: servers stand in so many racks.")
]
Oversubscription = Annotated[
    float, option(panel=NETWORK, rare=True, metavar="X", help="With max-min: of each rack's uplink.")
]
NetworkPath = Annotated[
    Path | None,
    option(
        "--network", panel=NETWORK, metavar="FILE", help="A hocket.network/1 file with a measured all-reduce."
    ),
]


def make_cluster(
    servers: int,
    gpus_per_server: int,
    memory: str,
    sharing: Literal["equation5", "max-min"],
    racks: int,
    oversubscription: float,
    *,
    network_file: Path | None,
) -> Cluster:
    """The cluster that options describe."""
    from hocket.cluster.cluster import Cluster
    from hocket.network import parse_bytes

    if sharing == "max-min" and racks == 1 and oversubscription != 1.0:
        raise HocketError(
            f"oversubscription {oversubscription} of one rack, whose uplink nothing crosses; give more racks,"
            " or leave it out"
        )
    measured: dict[str, Any] = {}
    if network_file is not None:
        from hocket.network.fit_quality import OF_ALL_REDUCE

        file = read_network(network_file)
        check_fits(network_file, file, OF_ALL_REDUCE)
        reduction = file.allreduce
        if reduction is None:
            raise HocketError(
                f"{network_file}: has no all-reduce; 'hocket network measure' writes one that has"
            )
        measured = {
            "startup_s": reduction.a_s,
            "per_byte_s": reduction.b_s_per_byte,
            "contention_per_byte_s": reduction.eta_s_per_byte,
        }
    return Cluster(
        num_servers=servers,
        gpus_per_server=gpus_per_server,
        gpu_memory_bytes=parse_bytes(memory),
        sharing=sharing,
        racks=racks,
        oversubscription=oversubscription,
        **measured,
    )
