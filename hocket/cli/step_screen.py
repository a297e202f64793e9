"""Plans, tables, remarks and next commands of ``plan``, ``simulate``, ``tune`` and ``demo``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from hocket.cli.planning_options import PlanningOptions
from hocket.cli.printing import progress
from hocket.cli.screen import MORE, NETWORK_OPTIONS, Sheet, command_line
from hocket.text import capitalized, counted

if TYPE_CHECKING:
    from hocket.graph import Plan, StepGraph
    from hocket.graph.result import ResultRow
    from hocket.network import Network
    from hocket.planner import Architecture
    from hocket.tuner import PlannedPolicy

_GPUS = (
    *("cuda", "nvidia", "amd", "tesla", "geforce", "quadro", "rtx", "radeon", "rocm", "hip", "gpu"),
    *("xpu", "intel(r)", "hpu", "habana", "gaudi", "mtia", "privateuse1", "npu"),
)
"""First words of the names that GPUs, and other accelerators, have in traces."""
STEP = (
    *(*NETWORK_OPTIONS, "architecture", "barrier", "clip", "workers", "servers", "window"),
    *("memory", "shards"),
)
"""Parameters that the next command about the same step is to have as well."""


def planned_by(
    graph: StepGraph,
    network: Network,
    policy: str,
    architecture: Architecture,
    planning: PlanningOptions,
    seed: int,
) -> PlannedPolicy:
    """The plan that a policy makes as ``planning`` asks, with the time that it takes shown."""
    from hocket.tuner import Exchange, make_plan

    budget_s = planning.budget_s()
    with progress(f"planning by {policy}", is_even=False) as report:
        return make_plan(
            graph,
            network,
            policy,
            Exchange(
                architecture=architecture,
                barrier=planning.barrier,
                fusion_bytes=planning.fusion_bytes(),
                clip=planning.clip,
                memory_bytes=planning.memory_bytes(),
            ),
            seed=seed,
            budget_s=budget_s,
            progress=lambda what, done, total: report(done, total, what),
        )


def step_sheet(
    rows: Sequence[ResultRow],
    *,
    of: str,
    wide: bool,
    title: str = "",
    alike_s: Mapping[str, float] | None = None,
) -> Sheet:
    """The table of ``rows``, which one of the policy ``of`` stands out from; ``alike_s``: as columns."""
    from hocket.columns import in_one_line
    from hocket.report.step_table import best_first, step_columns

    columns = step_columns(rows, wide=wide, alike_s=alike_s)
    bold = [row.policy == of for row in best_first(rows)]
    return Sheet(title, columns if wide else in_one_line(columns), bold)


def train_command(
    context: typer.Context, graph: StepGraph, plan: Plan, network: Network, path: str | None
) -> str:
    """The command that trains with the plan of a file, on machine K, with a word on the script.

    ``path``: None where training is to choose a plan itself.

    Empty for a step of a device that nothing trains on or with a caveat.
    """
    if plan.architecture == "fsdp":
        each = 1 if network.nodes is None else network.nodes.gpus
        run = f"torchrun --nnodes {-(-network.num_workers // each)} --nproc-per-node {each} train.py"
        untried = "" if trains_on(graph) else "; no GPU has run it"
        if untried and plan.policy == "fsdp-zero2":
            untried += "; torch's own fully_shard(..., reshard_after_forward=False) is much the same"
        return f'{run}  # your script, which calls hocket.shard(..., plan="{path}"){untried}'
    if not trains_on(graph) or graph.caveat:
        return ""
    options: dict[str, Any] = {"plan": path, "network": context.params.get("network_file")}
    if plan.architecture == "ps":
        options |= {"architecture": "ps", "servers": network.num_servers, "workers": network.num_workers}
        if not plan.pushes:
            options["mode"] = "inference"
    else:
        gpus = 1 if network.nodes is None else network.nodes.gpus
        machines = -(-network.num_workers // gpus)
        options |= {"nnodes": machines, "nproc-per-node": min(gpus, network.num_workers)}
        if machines > 1:
            options |= {"node-rank": "K", "master-addr": "HOST"}
    script = " train.py  # your script, which calls hocket.distribute"
    return command_line(context, "hocket", "train", like=(), **options) + script


def remarks_on(graph: StepGraph, architecture: str, *, wide: bool) -> list[str]:
    """Remarks below a table of plans for ``graph``: what else there is to see, and what its plans are for."""
    remarks = [] if wide else [MORE]
    if trains_on(graph):
        return remarks
    if architecture == "fsdp":
        remarks.append(
            f"The step is of {graph.device}: `hocket.shard` takes such a plan there (plan=FILE), but no GPU"
            " has trained by one"
        )
    else:
        usable = (
            "of plans for it a bucket size can be used, as DDP's `bucket_cap_mb`, others are to compare"
            if architecture == "allreduce"
            else "plans for it are to compare, not to train by"
        )
        remarks.append(f"The step is of {graph.device}, and Hocket trains on CPUs over gloo: {usable}")
    return remarks


def exact_remark(graph: StepGraph, rows: Sequence[ResultRow]) -> list[str]:
    """A remark on an optimum of the mean step among ``rows`` of several steps; none where there is none."""
    if graph.num_samples == 1 or not any(row.status == "optimal" for row in rows):
        return []
    return [
        f"Exact is proven the best if all steps were alike; its time here is by all {graph.num_samples} steps"
        " of the profile, as every policy's is"
    ]


def halves_remark(plan: Plan) -> list[str]:
    """A remark on a plan with reductions in halves; none on another."""
    halves = sum(reduction.halves for reduction in plan.reductions)
    if not halves:
        return []
    said = f"The plan has {halves} of its {counted(len(plan.reductions), 'reduction')} in halves"
    return [f"{said} (reduce-scatter, all-gather): it is for training that clips by norm"]


def whole_remark(context: typer.Context, graph: StepGraph, architecture: Architecture) -> list[str]:
    """A remark on a step that clips by itself and was planned in whole reductions alone; none on another."""
    from hocket.graph.clipped_step import is_clipped

    if architecture != "allreduce" or context.params["clip"] or not is_clipped(graph):
        return []
    return ["This step clips by norm: --clip tries sums in halves, too, as hocket.distribute does"]


def clipping_answer(
    context: typer.Context, graph: StepGraph, network: Network, rows: Sequence[ResultRow]
) -> list[str]:
    """A line on the step unclipped, and clipped under the usual policy; none where --clip was not given.

    ``graph``: the step as it was measured; ``rows``: of the clipped one, the usual policy's among them.
    """
    if not context.params["clip"]:
        return []
    from hocket.graph.clipped_step import clipped
    from hocket.report.verdicts import clipping_verdict
    from hocket.tuner.unclipped import best_unclipped

    unclipped = None
    if clipped(graph) is not graph:
        with progress("simulating without clipping"):
            iterations, seed = context.params.get("iterations", 20), context.params["seed"]
            kind: Architecture = "fsdp" if rows[0].architecture == "fsdp" else "allreduce"
            unclipped = best_unclipped(graph, network, kind, iterations=iterations, seed=seed)
    return [capitalized(clipping_verdict(rows, unclipped))]


def measured_gains(graph: StepGraph) -> list[str]:
    """A remark on where gains of training are that were measured; there are none of GPUs."""
    if not trains_on(graph):
        return ["Gains are simulated; none was measured on GPUs (on CPUs, by rho: docs/guides/train.md)"]
    return ["Gains are simulated; those measured in training, by rho, are in docs/guides/train.md"]


def trains_on(graph: StepGraph) -> bool:
    """Tell whether nothing says that the graph is of a GPU, on which hocket.distribute does not train."""
    from hocket.datasheets import DEVICES

    device = graph.device.lower()
    return not graph.precision and device not in DEVICES and device.split()[0].split(":")[0] not in _GPUS


def beside_usual(
    context: typer.Context, graph: StepGraph, network: Network, row: ResultRow, iterations: int
) -> list[ResultRow]:
    """``row``, and behind it that of the policy which others are compared with, unless it is the same."""
    from hocket.planner.named_planners import USUAL
    from hocket.sim import simulate
    from hocket.tuner import Exchange, make_plan

    usual, seed = USUAL[row.architecture], context.params["seed"]
    if row.policy == usual:
        return [row]
    barrier = context.params["barrier"]
    with progress(f"simulating {usual}") as report:
        planned = make_plan(graph, network, usual, Exchange(barrier=barrier), seed=seed)
        result = simulate(
            graph,
            planned.plan,
            network,
            iterations=iterations,
            seed=seed,
            random_order=planned.drawn_anew,
            progress=report,
        )
    return [row, planned.with_bounds(result.row)]
