"""``hocket bench train``: DDP and hocket in turn, by the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from hocket.cli import options
from hocket.cli.answer_settings import defaults, heading, option_settings
from hocket.cli.bench.lab_options import LabRunOptions
from hocket.cli.list_options import parts, ratios
from hocket.cli.name_options import complete_policy, lowercase
from hocket.cli.option_groups import grouped
from hocket.cli.panels import BENCHMARK, NETWORK, PLANNING, option
from hocket.cli.printing import print_json, print_table


@dataclass(frozen=True, kw_only=True)
class TrainingLab:
    """Options for the cluster that is emulated."""

    nodes: Annotated[
        int | None,
        option(panel=NETWORK, metavar="N", help="Of the emulated cluster; else 2. Under torchrun: its own."),
    ] = None
    rate: Annotated[
        str | None,
        option(
            panel=NETWORK,
            metavar="RATE",
            help="Of its links, each way: 1Gbit/s, or 1gbit.",
            show_default="250Mbit/s",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainedModels:
    """Options for the models that are trained, in batches of which size."""

    model: Annotated[
        list[str] | None,
        option(
            panel=BENCHMARK,
            metavar="NAME",
            help="cnn, vgg11, gpt, resnet18 or FILE.py:FACTORY, several by commas.",
            show_default="all four",
        ),
    ] = None
    rho: Annotated[
        str,
        option(panel=BENCHMARK, metavar="LIST", help="N / C, the network busy, to choose batch sizes for."),
    ] = "2,1,0.5"
    batch_size: Annotated[
        int | None, option(panel=BENCHMARK, metavar="N", help="One batch size instead of --rho.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainedVariants:
    """Options for the variants that are trained in turn."""

    plan: Annotated[
        str,
        option(
            panel=PLANNING,
            metavar="NAME",
            callback=lowercase,
            autocompletion=complete_policy,
            help="The plan that hocket trains by: auto, or a policy.",
        ),
    ] = "auto"
    compile_: Annotated[bool, option("--compile", panel=BENCHMARK, help="Compiled models too.")] = False
    clip: Annotated[
        bool, option("--clip", panel=BENCHMARK, help="Steps clip their gradients by their norm.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class TrainingTiming:
    """Options for how training is timed."""

    steps: Annotated[
        int,
        option(
            panel=BENCHMARK, rare=True, metavar="N", help="Timed steps of a block, after three that are not."
        ),
    ] = 8
    blocks: Annotated[
        int, option(panel=BENCHMARK, rare=True, metavar="N", help="Rounds: blocks of each variant.")
    ] = 5
    threads: Annotated[
        int, option(panel=BENCHMARK, rare=True, metavar="N", help="Intra-op threads of each rank.")
    ] = 1


@grouped
def train(
    context: typer.Context,
    lab: TrainingLab,
    models: TrainedModels,
    variants: TrainedVariants,
    timing: TrainingTiming,
    running: LabRunOptions,
    json: options.Json = False,
) -> None:
    """Time DDP's bucket sizes and hocket in turn, on one model and network, and what bounds them both.

    Where rho is less than 1 that bound is a reference, slightly above the true limit.

    The cluster is emulated (as root), or that of the processes that torchrun started.
    """
    import hocket.profiler  # noqa: F401  # says in one line where torch is missing
    from hocket.bench.training.timed_models import NAMES
    from hocket.bench.training.train import bench_train, benchmark_document
    from hocket.bench.training.training_request import TrainingRequest
    from hocket.bench.training.training_table import cell_heading, cell_table, summary_line
    from hocket.network import parse_bandwidth

    request = TrainingRequest(
        models=NAMES if models.model is None else parts(models.model),
        rhos=ratios(models.rho),
        batch_size=models.batch_size,
        steps=timing.steps,
        blocks=timing.blocks,
        seed=running.seed,
        threads=timing.threads,
        plan=variants.plan,
        compile=variants.compile_,
        clip=variants.clip,
        timeout_s=running.timeout_s(),
    )
    rate_bps = None if lab.rate is None else parse_bandwidth(lab.rate)
    benchmark = bench_train(request, nodes=lab.nodes, rate_bps=rate_bps)
    if benchmark is None:
        return
    if json:
        print_json({**benchmark_document(benchmark), "assumed": defaults(context)})
        return
    print(heading(option_settings(context)))
    for cell in benchmark.cells:
        print(cell_heading(cell))
        print_table(cell_table(cell))
    print(summary_line(benchmark.cells, benchmark.summary))
