"""Options of jobs on a cluster: by which placement and policy, and the cluster that is simulated."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hocket.cli.list_options import long_duration, numbers_of_names
from hocket.cli.name_options import complete_cluster_policy, complete_placement, lowercase
from hocket.cli.network_options import check_fits, read_network
from hocket.cli.panels import MACHINES, NETWORK, SCHEDULING, option
from hocket.errors import HocketError
from hocket.network import parse_bytes

if TYPE_CHECKING:
    from hocket.cluster.cluster import Cluster
    from hocket.cluster.engine.scheduling import Scheduling
    from hocket.cluster.gpu_type import GpuType

JobsFile = Annotated[
    Path, typer.Argument(metavar="JOBS", help="A hocket.jobs/1 file (.json, .json.gz or .json.zst).")
]
PLACEMENT = {"panel": SCHEDULING, "callback": lowercase, "autocompletion": complete_placement}
ASSUMED_CHECKPOINT = "30s"
POLICY = {"panel": SCHEDULING, "callback": lowercase, "autocompletion": complete_cluster_policy}


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """Options for jobs that queue and jobs that share a GPU, whatever the placement and the policy."""

    starvation: Annotated[
        str | None,
        option(
            panel=SCHEDULING,
            metavar="TIME",
            help="A job that has queued so long, 10min, holds GPUs until it fits.",
            show_default="none does",
        ),
    ] = None
    exclusive: Annotated[bool, option("--exclusive", panel=SCHEDULING, help="No two jobs share a GPU.")] = (
        False
    )
    jobs_per_gpu: Annotated[
        int | None,
        option(
            panel=SCHEDULING,
            rare=True,
            metavar="N",
            help="The most jobs that share a GPU.",
            show_default="as many as its memory holds",
        ),
    ] = None

    wait_for_faster: Annotated[
        bool,
        option(
            "--wait-for-faster",
            panel=SCHEDULING,
            rare=True,
            help="A job waits for a faster type of GPU where it is over sooner.",
        ),
    ] = False
    quota: Annotated[
        str | None,
        option(
            panel=SCHEDULING,
            metavar="LIST",
            help="The most GPUs of a user's jobs: alice=16,bob=8,*=32 (* each other).",
            show_default="none",
        ),
    ] = None
    shares: Annotated[
        str | None,
        option(
            panel=SCHEDULING,
            rare=True,
            metavar="LIST",
            help="With fair-share, users' weights: alice=2,bob=1.",
            show_default="1 each",
        ),
    ] = None
    half_life: Annotated[
        str | None,
        option(
            panel=SCHEDULING,
            rare=True,
            metavar="TIME",
            help="With fair-share, what users had so long ago, 7d, counts half.",
            show_default="all counts",
        ),
    ] = None

    def of(self, placement: str, policy: str, seed: int, chunk_bytes: float) -> Scheduling:
        """The scheduling by this placement and policy."""
        from hocket.cluster.engine.scheduling import Scheduling

        if self.exclusive and self.jobs_per_gpu not in (None, 1):
            raise HocketError(
                f"--exclusive and --jobs-per-gpu {self.jobs_per_gpu}: no two jobs share a GPU, or so many do;"
                " give one of them"
            )
        starvation = self.starvation
        scheduling = Scheduling(
            placement=placement,
            policy=policy,
            seed=seed,
            chunk_bytes=chunk_bytes,
            starvation_s=None if starvation is None else long_duration(starvation, "--starvation"),
            jobs_per_gpu=1 if self.exclusive else self.jobs_per_gpu,
            wait_for_faster=self.wait_for_faster,
            quotas=numbers_of_names(self.quota, "--quota"),
            shares=numbers_of_names(self.shares, "--shares"),
            half_life_s=None if self.half_life is None else long_duration(self.half_life, "--half-life"),
        )
        scheduling.check()
        return scheduling


@dataclass(frozen=True, kw_only=True)
class SchedulingOptions(QueueOptions):
    """Options for one placement and one policy."""

    placement: Annotated[
        str,
        option(metavar="NAME", help="rand, ff, ls, lwf-K, ...; an unknown name lists them.", **PLACEMENT),
    ]
    policy: Annotated[
        str, option(metavar="NAME", help="srsf-N, ada-srsf, ...; an unknown name lists them.", **POLICY)
    ]

    def scheduling(self, seed: int, chunk_bytes: float) -> Scheduling:
        """The scheduling that the options ask for."""
        return self.of(self.placement, self.policy, seed, chunk_bytes)


@dataclass(frozen=True, kw_only=True)
class ResizeOption:
    """The option for jobs that have another number of GPUs while they run."""

    resize: Annotated[
        bool,
        option(
            "--resize",
            panel=SCHEDULING,
            help="Jobs with a range of GPUs give some to others, and take more, while they run.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(ResizeOption):
    """Options for jobs that are resized, and what that or a preemption costs those that do not say."""

    checkpoint_cost: Annotated[
        str | None,
        option(
            panel=SCHEDULING,
            metavar="TIME",
            help="With srsf-requeue or --resize, to save a job that does not say; as long to restore it.",
            show_default=ASSUMED_CHECKPOINT,
        ),
    ] = None

    def costing(self, scheduling: Scheduling) -> Scheduling:
        """``scheduling`` with that, and with the cost where jobs are preempted or resized."""
        scheduling = dataclasses.replace(scheduling, resize=self.resize)
        if self.checkpoint_cost is None and not scheduling.stops_jobs:
            return scheduling
        cost = self.checkpoint_cost or ASSUMED_CHECKPOINT
        seconds = long_duration(cost, "--checkpoint-cost", may_be_zero=True)
        found = dataclasses.replace(scheduling, checkpoint_s=seconds)
        found.check()
        return found


@dataclass(frozen=True, kw_only=True)
class LiveSchedulingOptions(ResizeOption, SchedulingOptions):
    """Options for one placement and one policy under which jobs run."""

    def scheduling(self, seed: int, chunk_bytes: float) -> Scheduling:
        """The scheduling that the options ask for."""
        return dataclasses.replace(super().scheduling(seed, chunk_bytes), resize=self.resize)


@dataclass(frozen=True, kw_only=True)
class SimulatedSchedulingOptions(CheckpointOptions, SchedulingOptions):
    """Options for one placement and one policy that are simulated."""

    def scheduling(self, seed: int, chunk_bytes: float) -> Scheduling:
        """The scheduling that the options ask for."""
        return self.costing(super().scheduling(seed, chunk_bytes))


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """Options for what jobs share: the memory of GPUs, and the network, chunk by chunk."""

    memory: Annotated[
        str, option(panel=MACHINES, metavar="SIZE", help="Of each GPU; jobs share GPUs as far as it goes.")
    ] = "16GB"
    chunk: Annotated[
        str,
        option(
            panel=SCHEDULING,
            rare=True,
            metavar="SIZE",
            help="At whose end psrsf and srpt may give the network to another.",
        ),
    ] = "4MB"

    def chunk_bytes(self) -> float:
        """The bytes of a chunk."""
        return parse_bytes(self.chunk)


@dataclass(frozen=True, kw_only=True)
class _SimulatedServers:
    servers: Annotated[
        int | None,
        option(
            panel=MACHINES,
            metavar="N",
            help="Servers of the cluster.",
            show_default="those of --gpu-types, or 16",
        ),
    ] = None
    gpu_types: Annotated[
        str | None,
        option(
            panel=MACHINES,
            metavar="LIST",
            help="Servers of each type, and a GPU's memory: a100:8:80GB,v100:8.",
            show_default="one type",
        ),
    ] = None
    gpus_per_server: Annotated[int, option(panel=MACHINES, metavar="N", help="GPUs of each server.")] = 4


@dataclass(frozen=True, kw_only=True)
class _SimulatedNetwork:
    sharing: Annotated[
        Literal["equation5", "max-min"],
        option(
            panel=NETWORK,
            rare=True,
            help="The sharing of servers: the contention paper's Eq. 5, or max-min fairly.",
        ),
    ] = "equation5"
    racks: Annotated[
        int,
        option(panel=NETWORK, rare=True, metavar="N", help="With max-min: servers stand in so many racks."),
    ] = 1
    oversubscription: Annotated[
        float, option(panel=NETWORK, rare=True, metavar="X", help="With max-min: of each rack's uplink.")
    ] = 1.0
    network_file: Annotated[
        Path | None,
        option(
            "--network",
            panel=NETWORK,
            metavar="FILE",
            help="A hocket.network/1 file with a measured all-reduce.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SimulatedClusterOptions(_SimulatedNetwork, SharedOptions, _SimulatedServers):
    """Options for a cluster that is simulated."""

    def cluster(self) -> Cluster:
        """The cluster that the options describe."""
        from hocket.cluster.cluster import Cluster

        if self.sharing == "max-min" and self.racks == 1 and self.oversubscription != 1.0:
            raise HocketError(
                f"oversubscription {self.oversubscription} of one rack, whose uplink nothing crosses; give"
                " more racks, or leave it out"
            )
        measured = {} if self.network_file is None else measured_costs(self.network_file)
        types = listed_types(self.gpu_types, self.gpus_per_server) if self.gpu_types else ()
        servers = 16 if self.servers is None else self.servers
        if types and (of_types := sum(each.num_gpus for each in types) // self.gpus_per_server) != servers:
            if self.servers is not None:
                raise HocketError(
                    f"--servers {servers} and --gpu-types {self.gpu_types} of {of_types}; leave --servers out"
                )
            servers = of_types
        return Cluster(
            num_servers=servers,
            gpus_per_server=self.gpus_per_server,
            gpu_memory_bytes=parse_bytes(self.memory),
            gpu_types=types,
            sharing=self.sharing,
            racks=self.racks,
            oversubscription=self.oversubscription,
            **measured,
        )


def listed_types(text: str, gpus_per_server: int) -> tuple[GpuType, ...]:
    """The GPUs of each type that ``--gpu-types a100:8:80GB,v100:8`` names, in servers of so many."""
    from hocket.cluster.gpu_type import GpuType

    found = []
    for part in text.split(","):
        name, *rest = part.strip().split(":")
        if len(rest) not in (1, 2) or not rest[0].isdecimal() or not rest[0].isascii() or len(rest[0]) > 7:
            raise HocketError(
                f"--gpu-types {text}: '{part}' is no type with its servers; give e.g. a100:8 or a100:8:80GB"
            )
        memory = parse_bytes(rest[1]) if len(rest) == 2 else None
        found.append(GpuType(name=name.lower(), num_gpus=int(rest[0]) * gpus_per_server, memory_bytes=memory))
    return tuple(found)


def measured_costs(network_file: Path) -> dict[str, Any]:
    """The costs of transfers between servers, as a network's file has measured its all-reduces."""
    from hocket.network.fit_quality import OF_ALL_REDUCE

    file = read_network(network_file)
    check_fits(network_file, file, OF_ALL_REDUCE)
    reduction = file.allreduce
    if reduction is None:
        raise HocketError(f"{network_file}: has no all-reduce; 'hocket network measure' writes one that has")
    return {
        "startup_s": reduction.a_s,
        "per_byte_s": reduction.b_s_per_byte,
        "contention_per_byte_s": reduction.eta_s_per_byte,
    }
