"""``hocket diagnose``: where a traced job's time goes, what plans gain, and when more ranks stop paying."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import applying, assumptions
from hocket.cli.network_options import NetworkOptions
from hocket.cli.network_settings import described_network, is_described, usual_latency
from hocket.cli.option_groups import grouped
from hocket.cli.panels import OUTPUT, WORKERS, option
from hocket.cli.planning_options import Budget
from hocket.cli.printing import note, print_json, progress
from hocket.cli.screen import MORE, NETWORK_OPTIONS, Sheet, command_line, show

if TYPE_CHECKING:
    from hocket.cli.answer_settings import AnswerSetting
    from hocket.diagnosis import Diagnosis
    from hocket.graph import StepGraph
    from hocket.network import Network


@dataclass(frozen=True, kw_only=True)
class DiagnoseOutput(options.PrintOptions):
    """Options for what ``hocket diagnose`` writes and prints."""

    output: Annotated[
        Path | None,
        option("-o", "--output", panel=OUTPUT, metavar="FILE", help="Write a page that shows all of it."),
    ] = None


@grouped
def diagnose(
    context: typer.Context,
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="torch.profiler's trace of each rank (.json, .gz)."),
    ],
    reading: options.TraceOptions,
    net: NetworkOptions,
    output: DiagnoseOutput,
    workers: Annotated[
        int | None,
        option(
            panel=WORKERS,
            metavar="N",
            min=1,
            max=1_000_000,
            help="Ranks to plan for.",
            show_default="as many as trained",
        ),
    ] = None,
    budget: Budget = "2s",
) -> None:
    """Tell where a traced job's time goes, what the best plan gains, and when more ranks stop paying."""
    from hocket.diagnosis import diagnose as run
    from hocket.document import write_whole
    from hocket.interop.kineto.kineto_step import step_of
    from hocket.interop.kineto.traced_job import read_job
    from hocket.network import parse_duration

    output.check()
    budget_s = parse_duration(budget)
    given = options.inputs(*traces, reading.execution_trace, net.network_file, net.cluster)
    if output.output is not None:
        options.check_beside_result(output.output, *given)
    with progress("reading"):
        job = read_job(traces, execution_trace=reading.execution_trace, partial=reading.partial)
        imported = step_of(job, batch_size=reading.batch_size, allow_no_gradients=True)
    network, settings = _network(context, imported.graph, workers)
    with progress("diagnosing") as tell:
        found = run(
            job,
            imported,
            network,
            budget_s=budget_s,
            progress=lambda what, done, total: tell(done, total, what),
        )
    if output.output is not None:
        from hocket.report.diagnosis_page import render_diagnosis

        write_whole(render_diagnosis(found).encode(), output.output)
    if output.json:
        print_json(_document(found))
    else:
        _show(context, found, settings, wide=output.wide)
    for line in found.notes:
        note(line)
    if output.output is not None:
        note(f"{output.output}: open it in a browser")


def _network(
    context: typer.Context, graph: StepGraph, workers: int | None
) -> tuple[Network | None, list[AnswerSetting]]:
    """The network that options describe or that was recorded; none where neither says anything."""
    recorded = graph.recorded
    if not is_described(context) and (recorded is None or recorded.network is None):
        return None, []
    ranks = workers or (options.WORKERS_ASSUMED if recorded is None else recorded.workers)
    return described_network(context, ranks, 1, graph.device, recorded, **usual_latency(context))


def _document(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis as JSON has it; times in seconds."""
    import dataclasses

    from hocket.report.diagnosis_words import advice, answers

    tuning, half = found.tuning, found.half_at
    return {
        "model": found.graph.model,
        "device": found.graph.device,
        "ranks": found.ranks,
        "answers": answers(found),
        "advice": advice(found),
        "times": dataclasses.asdict(found.times),
        "per_rank": [dataclasses.asdict(rank) for rank in found.per_rank],
        "collectives": [dataclasses.asdict(use) for use in found.collectives],
        "operations": [dataclasses.asdict(use) for use in found.operations],
        "reason": found.reason,
        "recorded_step_s": None if found.check is None else found.check.recorded.step_s,
        "predicted_step_s": None if found.check is None else found.check.predicted_s,
        "ranked": [] if tuning is None else [msgspec.to_builtins(row) for row in tuning.ranked],
        "best": None if tuning is None else tuning.best.policy,
        "bound_s": None if tuning is None else tuning.best.bound_s,
        "scaling": [msgspec.to_builtins(row) for row in found.scaling],
        "half_at": None if half is None else half.workers,
        "notes": list(found.notes),
    }


def _show(context: typer.Context, found: Diagnosis, settings: list[AnswerSetting], *, wide: bool) -> None:
    from hocket.columns import in_one_line
    from hocket.report.diagnosis_table import (
        collective_columns,
        operation_columns,
        rank_columns,
        scaling_columns,
        time_columns,
    )
    from hocket.report.diagnosis_words import advice, answers
    from hocket.report.step_table import best_first, step_columns

    sheets = [Sheet("", time_columns(found))]
    if len(found.per_rank) > 1:
        sheets.append(Sheet("Ranks:", rank_columns(found)))
    if found.collectives:
        sheets.append(Sheet("Collectives:", collective_columns(found.collectives)))
    if found.tuning is not None:
        ranked = found.tuning.ranked
        columns = step_columns(ranked, wide=wide)
        bold = [row.policy == found.tuning.best.policy for row in best_first(ranked)]
        sheets.append(Sheet("Plans:", columns if wide else in_one_line(columns), bold))
        sheets.append(Sheet("More ranks:", scaling_columns(found.scaling)))
    if wide:
        sheets.append(Sheet("Operations that take longest:", operation_columns(found)))
    show(
        [*answers(found), *advice(found)],
        assumptions=assumptions(found.graph, applying(settings, "allreduce")) if settings else "",
        sheets=sheets,
        remarks=[] if wide else [MORE],
        following=_following(context, found),
    )


def _following(context: typer.Context, found: Diagnosis) -> str:
    """The command to go on with: the step to plan and predict by; where it cannot be planned, the page."""
    traces = [str(trace) for trace in context.params["traces"]]
    like: tuple[str, ...] = ("execution_trace", "batch_size", "partial")
    if found.reason:
        if context.params["output"] is not None:
            return ""
        return command_line(context, "hocket", "diagnose", *traces, like=like, output="page.html")
    if found.network is None:
        network = {"bandwidth": "100Gbit/s", "latency": "20us"}
        like = (*like, *NETWORK_OPTIONS)
        return command_line(context, "hocket", "diagnose", *traces, like=like, **network)
    step = f"{found.graph.model}.step.json"
    return command_line(context, "hocket", "import", "kineto", *traces, like=like, output=step)
