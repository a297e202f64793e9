"""Options of ``hocket predict`` for machines: workers, servers, and the network between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from hocket.cli.list_options import bandwidths, speeds
from hocket.cli.network_options import NetworkOptions
from hocket.cli.panels import NETWORK, WORKERS, option

if TYPE_CHECKING:
    from hocket.network import Network
    from hocket.predictor import Machines

_NUMBERS = {"panel": WORKERS, "metavar": "LIST"}


@dataclass(frozen=True, kw_only=True)
class PredictWorkers:
    """Options for workers and servers: how many, how fast, and what they cost."""

    workers: Annotated[
        str,
        option(
            "--workers",
            help="A row for each number of them, since they are the question: 4, 1,2,4 or 1-16.",
            **_NUMBERS,
        ),
    ] = "1-16"
    servers: Annotated[
        str,
        option(
            "--servers", help="Numbers of parameter servers: 1,2,4; a row for each combination.", **_NUMBERS
        ),
    ] = "1"
    speed: Annotated[
        str | None,
        option(
            "--speed",
            panel=WORKERS,
            metavar="LIST",
            help="Of each worker, 1 being the one profiled: 1,1,0.5.",
        ),
    ] = None
    backup: Annotated[
        int,
        option(
            "--backup",
            panel=WORKERS,
            rare=True,
            metavar="N",
            help="Sync: slowest workers that a step does not wait for.",
        ),
    ] = 0
    spread: Annotated[
        bool,
        option(
            "--spread",
            panel=WORKERS,
            rare=True,
            help="Async: workers begin apart, the last one nearly a step late.",
        ),
    ] = False
    price_per_worker_hour: Annotated[
        float | None,
        option(
            "--price-per-worker-hour",
            panel=WORKERS,
            metavar="X",
            help="Price of a worker an hour, any currency; in nodes: of one GPU.",
        ),
    ] = None
    price_per_server_hour: Annotated[
        float | None,
        option("--price-per-server-hour", panel=WORKERS, metavar="X", help="Price of a server's."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PredictNetwork(NetworkOptions):
    """Options for the network, with machines and racks that have bandwidths of their own."""

    window: Annotated[
        str | None,
        option(
            "--window",
            panel=NETWORK,
            rare=True,
            metavar="SIZE|off",
            help="HTTP/2's, between workers and servers.",
            show_default="28MB if async, off if sync",
        ),
    ] = None
    worker_bandwidth: Annotated[
        str | None,
        option(
            "--worker-bandwidth",
            panel=NETWORK,
            rare=True,
            metavar="LIST",
            help="Of the workers, one for all or one for each: 10Gbit/s,1Gbit/s.",
        ),
    ] = None
    server_bandwidth: Annotated[
        str | None,
        option(
            "--server-bandwidth",
            panel=NETWORK,
            rare=True,
            metavar="LIST",
            help="Of the servers, one for all or one for each.",
        ),
    ] = None
    racks: Annotated[
        int,
        option(
            "--racks",
            panel=NETWORK,
            rare=True,
            metavar="N",
            help="Machines are spread evenly over so many.",
        ),
    ] = 1
    oversubscription: Annotated[
        float,
        option(
            "--oversubscription",
            panel=NETWORK,
            rare=True,
            metavar="X",
            help="Of each rack's uplink: its machines' bandwidths over its own.",
        ),
    ] = 1.0
    background: Annotated[
        float,
        option(
            "--background",
            panel=NETWORK,
            rare=True,
            metavar="X",
            help="Fraction of every link that others use, 0 to 1.",
        ),
    ] = 0.0

    def machines(self, workers: PredictWorkers, network: Network) -> Machines:
        """The machines that these options and those of workers describe; racks of nodes are the network's."""
        from hocket.predictor import Machines

        nodes = network.nodes
        of_nodes = nodes is not None and nodes.per_rack is not None
        return Machines(
            speeds=(1.0,) if workers.speed is None else speeds(workers.speed),
            worker_bps=bandwidths(self.worker_bandwidth, "worker bandwidth"),
            server_bps=bandwidths(self.server_bandwidth, "server bandwidth"),
            racks=self.racks,
            oversubscription=1.0 if of_nodes else self.oversubscription,
            background=self.background,
            backup=workers.backup,
            spread=workers.spread,
        )
