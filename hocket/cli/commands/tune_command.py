"""``hocket tune``: every policy on one's own step and network, ranked, and the best plan on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import (
    SYNCHRONOUS,
    applying,
    architecture_setting,
    assumed,
    assumptions,
    caution,
    caveat_setting,
    step_settings,
)
from hocket.cli.given_options import given, other_options
from hocket.cli.network_options import NetworkOptions
from hocket.cli.network_settings import described_network, link_text, usual_latency
from hocket.cli.option_groups import grouped
from hocket.cli.panels import OUTPUT, option
from hocket.cli.planning_options import PlanningOptions
from hocket.cli.printing import note, print_json
from hocket.cli.ranking_next_command import ShownRanking, after_ranking, settled
from hocket.cli.screen import Sheet, show
from hocket.cli.step_screen import (
    exact_remark,
    halves_remark,
    measured_gains,
    remarks_on,
    step_sheet,
    trains_on,
    whole_remark,
)
from hocket.cli.tuning_progress import tuning_progress
from hocket.text import capitalized, counted

if TYPE_CHECKING:
    from hocket.graph import StepGraph
    from hocket.graph.result import ResultRow
    from hocket.network import Network


@dataclass(frozen=True, kw_only=True)
class _TuneFiles:
    output: Annotated[
        Path | None,
        option(
            "-o",
            "--output",
            panel=OUTPUT,
            metavar="FILE",
            help="The best plan's file.",
            show_default="STEP.tuned.plan.json, here",
        ),
    ] = None
    report: Annotated[
        Path | None,
        option("--report", panel=OUTPUT, metavar="FILE", help="Write a page that shows the ranking and why."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TuneOutput(options.PrintOptions, _TuneFiles):
    """Options for what ``hocket tune`` writes and prints."""

    def plan_file(self, step: Path, inputs: list[Path]) -> Path:
        """The file of the best plan; refused, as the page is, where it may not be written."""
        written = _named_after(step) if self.output is None else self.output
        options.check_beside_result(written, *inputs)
        if self.report is not None:
            options.check_beside_result(self.report, *inputs)
            options.check_apart(self.report, written, "the page and the plan")
        return written


@grouped
def tune(
    context: typer.Context,
    step: options.Step,
    planning: PlanningOptions,
    machines: options.WorkersOptions,
    net: NetworkOptions,
    simulation: options.SimulationOptions,
    out: TuneOutput,
) -> None:
    """Try every policy, search for a better plan, and write the best: never slower than any of them."""
    from hocket.document import write_whole
    from hocket.graph import load_step, save_plan
    from hocket.origin import origin
    from hocket.report.memory_verdict import memory_answers, memory_verdict, unknown_memory
    from hocket.report.result_files import Entry
    from hocket.report.sharded_verdict import (
        copies_verdict,
        limit_verdict,
        over_the_limit,
        sharded_memory_answer,
        sharded_remark,
    )
    from hocket.report.step_page import render
    from hocket.report.uncertain_gain import below_gains, uncertain_gain
    from hocket.report.verdicts import (
        clipping_verdict,
        halves_verdict,
        on_workers,
        ranking_remarks,
        ranking_verdict,
    )
    from hocket.tuner import tune as run

    out.check()
    exchange = architecture_setting(context, None)
    planning.check_sharded(exchange.value)
    limit = planning.memory_bytes()
    options.check_servers(machines.servers, exchange.value)
    graph = load_step(step)
    network, of_network = described_network(
        context,
        machines.workers,
        machines.servers,
        graph.device,
        graph.recorded,
        **usual_latency(context),
    )
    written, report = out.plan_file(step, options.inputs(step, net.network_file, net.cluster)), out.report
    with tuning_progress(network.num_workers, simulation.iterations) as tell:
        found = run(
            graph,
            network,
            architecture=exchange.value,
            barrier=planning.barrier,
            iterations=simulation.iterations,
            seed=simulation.seed,
            fusion_bytes=planning.fusion_bytes(),
            budget_s=planning.budget_s(),
            timelines=report is not None,
            clip=planning.clip,
            memory_bytes=limit,
            progress=tell,
        )
    save_plan(found.plan, written)
    made = origin(network)
    if report is not None:
        entries = [Entry(row, found.timelines.get(row.policy), made) for row in found.ranked]
        write_whole(render(entries, title=f"{graph.model}: every policy, ranked").encode(), report)
    best = found.best
    sharded = exchange.value == "fsdp"
    memory = None if sharded else memory_verdict(graph, 1 if exchange.value == "ps" else machines.workers)
    over = over_the_limit(found.ranked, limit)
    ranked = [row for row in found.ranked if row not in over] or found.ranked
    settings = [exchange, SYNCHRONOUS, *step_settings(context, network), *of_network]
    settings += [*other_options(context, settings), *caveat_setting(graph)]
    if out.json:
        print_json(
            {
                "ranked": [msgspec.to_builtins(row) for row in found.ranked],
                "best": best.policy,
                "bound_s": best.bound_s,
                "alike_s": found.alike_s,
                "alike_bound_s": found.alike_bound_s,
                **({"unclipped": msgspec.to_builtins(found.unclipped)} if planning.clip else {}),
                "plan": str(written),
                **({} if memory is None else {"memory": memory.document()}),
                **({"frontier": [list(point) for point in found.frontier]} if sharded else {}),
                "evaluations": found.evaluations,
                "wall_s": found.wall_s,
                "origin": msgspec.to_builtins(made),
                "assumed": assumed(context, settings, exchange.value),
                "given": given(context, settings, exchange.value),
            }
        )
    else:
        where = on_workers(best, link_text(network, best.workers), clip=planning.clip)
        doubts = uncertain_gain(graph, ranked, found.alike_s)
        doubts += below_gains(graph, ranked) if trains_on(graph) else []
        beside = [capitalized(line) for line in doubts]
        if planning.clip:
            said = clipping_verdict(found.ranked, found.unclipped), halves_verdict(found.ranked, found.plans)
            beside += [capitalized(line) for line in said if line]
        verdict = capitalized(ranking_verdict(ranked, where, found.alike_s, found.alike_bound_s))
        copied = _faster_copies(graph, network, ranked[0], planning, simulation)
        if copied is not None and network.nodes is not None:
            beside.append(capitalized(copies_verdict(copied, ranked[0], network.nodes.gpus)))
        beside += map(capitalized, sharded_memory_answer(graph, network, found.plan, limit))
        beside += [] if limit is None else [capitalized(limit_verdict(found.ranked, limit))]
        none_fits = over == found.ranked
        if none_fits:
            verdict, beside = beside[-1], beside[:-1]
        show(
            memory_answers(memory, [verdict, *beside, *caution(graph), *settled(graph, ranked)]),
            assumptions=assumptions(graph, applying(settings, exchange.value)),
            sheets=[
                step_sheet(ranked, of=best.policy, wide=out.wide, alike_s=found.alike_s),
                *(
                    [step_sheet(over, of="", wide=out.wide, title="Over the limit")]
                    if over and over != ranked
                    else []
                ),
                *_time_against_memory(found.frontier),
            ],
            remarks=[
                *sharded_remark(graph, found.plan),
                *ranking_remarks(ranked, found.alike_s),
                *measured_gains(graph),
                *halves_remark(found.plan),
                *exact_remark(graph, ranked),
                *whole_remark(context, graph, exchange.value),
                *([] if sharded else unknown_memory(graph)),
                *_free_slices(network),
                *remarks_on(graph, exchange.value, wide=out.wide),
            ],
            following=after_ranking(
                context,
                ShownRanking(
                    graph=graph,
                    network=network,
                    plan=found.plan,
                    path=str(written),
                    rows=ranked,
                    alike_s=found.alike_s,
                    may_be_zero=bool(doubts),
                    none_fits=none_fits,
                    copies_are_faster=copied is not None,
                ),
            ),
        )
    note(f"{written}: the plan of {ranked[0].title}; the search tried {counted(found.evaluations, 'plan')}")
    if report is not None:
        note(f"{report}: open it in a browser")


def _time_against_memory(frontier: Sequence[tuple[float, float]]) -> list[Sheet]:
    """The memory that shorter and shorter steps need, as a table; none where there is one such plan."""
    from hocket.columns import number_column, time_column
    from hocket.text import time_unit

    if len(frontier) < 2:
        return []
    seconds = [step_s for _, step_s in frontier]
    return [
        Sheet(
            "Time against memory (no other of these plans and those above takes less of both)",
            [
                number_column("Memory", [size / 1e9 for size, _ in frontier], "", unit="GB"),
                time_column("Step time", seconds, time_unit(seconds), ""),
            ],
        )
    ]


def _free_slices(network: Network) -> list[str]:
    """A remark on transfers that cost their bytes alone; none where they have a startup or were timed."""
    if network.startup_s or network.reduction is not None:
        return []
    return [
        "With a startup of 0 s many small transfers cost no more than one: give --latency, or --network with"
        " the file that `hocket network measure` writes on your machines"
    ]


def _faster_copies(
    graph: StepGraph,
    network: Network,
    best: ResultRow,
    planning: PlanningOptions,
    simulation: options.SimulationOptions,
) -> ResultRow | None:
    """A sharded step with a copy in each node, where it is shorter than the best one by more than little."""
    from hocket.report.compared_rows import LITTLE
    from hocket.tuner import Exchange
    from hocket.tuner.sharded_in_nodes import sharded_in_nodes

    if best.architecture != "fsdp":
        return None
    asked = Exchange(architecture="fsdp", clip=planning.clip, memory_bytes=planning.memory_bytes())
    found = sharded_in_nodes(graph, network, asked, iterations=simulation.iterations, seed=simulation.seed)
    return None if found is None or found.iteration_s >= (1 - LITTLE) * best.iteration_s else found


def _named_after(step: Path) -> Path:
    """The plan's file where none is named: after STEP, without what says that it is one, in this folder."""
    name = "stdin" if str(step) == "-" else step.name
    for suffix in (".zst", ".gz", ".json", ".step"):
        name = name.removesuffix(suffix)
    return Path(f"{name or 'step'}.tuned.plan.json")
