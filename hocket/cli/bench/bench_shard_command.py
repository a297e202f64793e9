"""``hocket bench shard``: plain FSDP2, set by hand, and hocket's plan in turn, by the clock."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.answer_settings import defaults, heading, option_settings
from hocket.cli.bench.bench_train_command import TrainingTiming
from hocket.cli.bench.lab_options import LabRunOptions
from hocket.cli.option_groups import grouped
from hocket.cli.panels import BENCHMARK, NETWORK, PLANNING, option
from hocket.cli.printing import print_json, print_table


@dataclass(frozen=True, kw_only=True)
class ShardingLab:
    """Options for the cluster that is emulated."""

    nodes: Annotated[int, option(panel=NETWORK, metavar="N", help="Of the emulated cluster.")] = 2
    rate: Annotated[
        str, option(panel=NETWORK, metavar="RATE", help="Of its links, each way: 1Gbit/s, or 1gbit.")
    ] = "250Mbit/s"


@dataclass(frozen=True, kw_only=True)
class ShardedTraining:
    """Options for the model that is trained, and by which plan."""

    model: Annotated[
        str, option(panel=BENCHMARK, metavar="NAME", help="cnn, vgg11, gpt, resnet18 or FILE.py:FACTORY.")
    ] = "gpt"
    batch_size: Annotated[int, option(panel=BENCHMARK, metavar="N", help="Examples of a rank's step.")] = 8
    plan: Annotated[
        str, option(panel=PLANNING, metavar="NAME|FILE", help="Hocket's: auto, a policy, or a plan's file.")
    ] = "auto"
    timeline: Annotated[
        str, option(panel=BENCHMARK, metavar="FILE", help="Write rank 0's last steps under hocket's plan.")
    ] = ""


@grouped
def shard(
    context: typer.Context,
    lab: ShardingLab,
    trained: ShardedTraining,
    timing: TrainingTiming,
    running: LabRunOptions,
    json: options.Json = False,
) -> None:
    """Time plain FSDP2, FSDP2 set two ahead by hand, and hocket's plan in turn, on an emulated cluster.

    It is emulated as root.
    """
    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.bench.sharding.sharding import bench_shard
    from hocket.bench.sharding.sharding_request import ShardingRequest
    from hocket.bench.sharding.sharding_table import sharding_heading, sharding_table
    from hocket.network import parse_bandwidth

    request = ShardingRequest(
        model=trained.model,
        batch_size=trained.batch_size,
        steps=timing.steps,
        blocks=timing.blocks,
        seed=running.seed,
        threads=timing.threads,
        plan=trained.plan,
        timeline=os.path.abspath(trained.timeline) if trained.timeline else "",
        timeout_s=running.timeout_s(),
    )
    benchmark = bench_shard(request, nodes=lab.nodes, rate_bps=parse_bandwidth(lab.rate))
    if json:
        import msgspec

        print_json({**msgspec.to_builtins(benchmark), "assumed": defaults(context)})
        return
    print(heading(option_settings(context)))
    print(sharding_heading(benchmark))
    print_table(sharding_table(benchmark))
