"""Options of ``hocket predict``, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hocket.cli import options
from hocket.cli.list_options import bandwidths, speeds
from hocket.cli.name_options import complete_policy, lowercase
from hocket.cli.network_options import NetworkOptions
from hocket.cli.panels import NETWORK, OUTPUT, PLANNING, SIMULATION, WORKERS, option
from hocket.cli.planning_options import ExchangeOptions, PlanFile, PlannerOptions

if TYPE_CHECKING:
    from hocket.predictor import Machines

_SKIPPED = 50
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
            help="What a worker's machine costs an hour, in any currency.",
        ),
    ] = None
    price_per_server_hour: Annotated[
        float | None,
        option("--price-per-server-hour", panel=WORKERS, metavar="X", help="What a server's costs."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class _Mode:
    mode: Annotated[
        Literal["async", "sync"] | None,
        option(
            "--mode",
            panel=PLANNING,
            help="Whether workers wait for each other; async has servers.",
            show_default="sync with all-reduce, async with servers",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class _PredictedPolicy(ExchangeOptions, _Mode):
    policy: Annotated[
        str | None,
        option(
            "--policy",
            panel=PLANNING,
            metavar="NAME",
            callback=lowercase,
            autocompletion=complete_policy,
            help="Plan by this policy; a wrong name lists all.",
            show_default="ddp, with servers fifo",
        ),
    ] = None
    plan: PlanFile = None
    updates: Annotated[
        Literal["arrival", "commit"],
        option(
            "--updates",
            panel=PLANNING,
            rare=True,
            help="Servers begin them as gradients arrive, or when a worker commits its step.",
        ),
    ] = "arrival"


@dataclass(frozen=True, kw_only=True)
class PredictPlanning(PlannerOptions, _PredictedPolicy):
    """Options for what each configuration runs by."""


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
            "--racks", panel=NETWORK, rare=True, metavar="N", help="Machines are spread evenly over so many."
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

    def machines(self, workers: PredictWorkers) -> Machines:
        """The machines that these options and those of workers describe."""
        from hocket.predictor import Machines

        return Machines(
            speeds=(1.0,) if workers.speed is None else speeds(workers.speed),
            worker_bps=bandwidths(self.worker_bandwidth, "worker bandwidth"),
            server_bps=bandwidths(self.server_bandwidth, "server bandwidth"),
            racks=self.racks,
            oversubscription=self.oversubscription,
            background=self.background,
            backup=workers.backup,
            spread=workers.spread,
        )


@dataclass(frozen=True, kw_only=True)
class PredictSimulation:
    """Options for the steps that a prediction rests on."""

    steps: Annotated[
        int, option("--steps", panel=SIMULATION, metavar="N", help="Steps of each worker to simulate.")
    ] = 1000
    skip: Annotated[
        int | None,
        option(
            "--skip",
            panel=SIMULATION,
            rare=True,
            metavar="N",
            help="Of them, left out at the beginning.",
            show_default="50, half of few",
        ),
    ] = None
    max_steps: Annotated[
        int | None,
        option(
            "--max-steps",
            panel=SIMULATION,
            rare=True,
            metavar="N",
            help="Go on to, until both halves agree to 5%.",
            show_default="16 times the steps",
        ),
    ] = None
    repeats: Annotated[
        int,
        option(
            "--repeats",
            panel=SIMULATION,
            metavar="N",
            help="Seeds to run; two or more give 95% intervals.",
        ),
    ] = 1
    seed: options.Seed = 0
    engine: Annotated[
        Literal["local", "ray"],
        option("--engine", panel=SIMULATION, rare=True, help="All cores of this machine, or a Ray cluster."),
    ] = "local"

    def skipped(self) -> int:
        """The steps at the beginning that are left out."""
        return min(_SKIPPED, self.steps // 2) if self.skip is None else self.skip


@dataclass(frozen=True, kw_only=True)
class _PredictFiles:
    measured: Annotated[
        Path | None,
        option("--measured", panel=OUTPUT, metavar="FILE", help="CSV to compare with: workers,throughput."),
    ] = None
    plot: Annotated[
        Path | None, option("--plot", panel=OUTPUT, metavar="FILE", help="Write a page with the curves.")
    ] = None
    timeline: Annotated[
        Path | None,
        option(
            "--timeline",
            panel=OUTPUT,
            metavar="FILE",
            help="Write a trace of the most machines for Perfetto.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PredictOutput(options.PrintOptions, _PredictFiles):
    """Options for what is printed and written."""

    def check_files(self, inputs: list[Path]) -> None:
        """Refuse outputs that may not be written, or are one file."""
        for output in (self.plot, self.timeline):
            if output is not None:
                options.check_beside_result(output, *inputs)
        if self.plot is not None and self.timeline is not None:
            options.check_apart(self.plot, self.timeline, "the page and the timeline")
