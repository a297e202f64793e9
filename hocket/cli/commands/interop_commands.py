"""``hocket import`` and ``hocket export``: steps from other tools' traces, and traces for other tools."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli import options
from hocket.cli.answer_settings import applying, heading
from hocket.cli.network_options import LinkOptions
from hocket.cli.network_settings import described_network
from hocket.cli.option_groups import grouped
from hocket.cli.panels import GENERAL, OUTPUT, PLANNING, WORKERS, option
from hocket.cli.printing import note, progress
from hocket.cli.screen import as_sentence
from hocket.errors import HocketError

if TYPE_CHECKING:
    from hocket.graph import Plan, StepGraph, Timeline
    from hocket.graph.result import ResultRow
    from hocket.interop.imported import ImportedStep
    from hocket.interop.kineto.traced_job import TracedJob
    from hocket.network import Network

Unplanned = Annotated[
    bool,
    option(
        "--allow-no-gradients",
        panel=GENERAL,
        help="Import to look at: without parameters, where the exchange of gradients cannot be told.",
    ),
]
UnplannedOfGpu = Annotated[
    bool,
    option(
        "--allow-no-gradients",
        panel=GENERAL,
        help="Import to look at: without parameters, where the exchange of gradients cannot be told. A trace"
        " of CPUs alone is refused all the same.",
    ),
]
Written = Annotated[
    Path, option("-o", "--output", panel=OUTPUT, metavar="FILE", help="The hocket.step/1 file to write.")
]


@grouped
def import_kineto(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="torch.profiler's trace of each rank (.json, .gz)."),
    ],
    output: Written,
    reading: options.TraceOptions,
    network_out: Annotated[
        Path | None,
        option(
            "--network-out",
            panel=OUTPUT,
            metavar="FILE",
            help="The hocket.network/1 file to write: what the job's collectives took.",
        ),
    ] = None,
    plan_out: Annotated[
        Path | None,
        option(
            "--plan-out",
            panel=OUTPUT,
            metavar="FILE",
            help="The hocket.plan/1 file to write: the job's all-reduces, or its units of FSDP2.",
        ),
    ] = None,
    allow_no_gradients: UnplannedOfGpu = False,
) -> None:
    """One job's Kineto traces as a step that can be planned, tuned and predicted.

    They are of GPUs: a trace of CPUs alone is refused, and `hocket profile` measures such a step.
    """
    from hocket.document import write_json
    from hocket.graph import save_plan
    from hocket.graph.plan import transfers_text
    from hocket.graph.recorded_plan import recorded_plan
    from hocket.interop.kineto.kineto_step import step_of
    from hocket.interop.kineto.traced_job import read_job

    given = [*traces, *options.inputs(reading.execution_trace)]
    options.check_written(output, *given)
    if network_out is not None:
        options.check_written(network_out, *given)
        options.check_apart(network_out, output, "the network and the step")
    if plan_out is not None:
        options.check_written(plan_out, *given)
        options.check_apart(plan_out, output, "the plan and the step")
        if network_out is not None:
            options.check_apart(plan_out, network_out, "the plan and the network")
    with progress("reading"):
        job = read_job(traces, execution_trace=reading.execution_trace, partial=reading.partial)
        imported = step_of(job, batch_size=reading.batch_size, allow_no_gradients=allow_no_gradients)
    recorded = imported.graph.recorded
    if network_out is not None and (recorded is None or recorded.network is None):
        raise HocketError(
            f"{network_out}: the traces hold no all-reduces of gradients between ranks whose sizes are known,"
            " and no units of FSDP2, so there is no network to write; leave --network-out out"
        )
    plan = None if plan_out is None else recorded_plan(imported.graph)
    if plan_out is not None and plan is None:
        raise HocketError(
            f"{plan_out}: the traces do not say which parameters went together between ranks, so there is no "
            "plan to write; leave --plan-out out"
        )
    _put(imported, output)
    if plan is not None and plan_out is not None:
        save_plan(plan, plan_out)
        note(f"{plan_out}: the plan that the job ran under, {transfers_text(plan)}; for --plan")
    if network_out is not None and recorded is not None:
        write_json(recorded.network, network_out)
        note(f"{network_out}: the network, for --network of other steps; this one brings it along")
    _summarize(job, imported, output)


_SEARCHED_S = 0.5


def _summarize(job: TracedJob, imported: ImportedStep, output: Path) -> None:
    """Say what a step's time is spent on, what could be gained of it, and the next command."""
    from hocket.diagnosis import diagnose
    from hocket.document import convert_document
    from hocket.network import NetworkFile
    from hocket.report.diagnosis_words import advice, answers

    recorded, network = imported.graph.recorded, None
    if recorded is not None and recorded.network is not None:
        fields = {name: value for name, value in recorded.network.items() if name != "format"}
        file = convert_document(fields, NetworkFile, "recorded.network")
        network = file.network(recorded.workers)
    with progress("diagnosing") as tell:
        found = diagnose(
            job,
            imported,
            network,
            budget_s=_SEARCHED_S,
            progress=lambda what, done, total: tell(done, total, what),
        )
    for line in (*answers(found), *advice(found)):
        note(as_sentence(line))
    traces = shlex.join(trace.source for trace in job.traces)
    if found.reason:
        note(f"Next: hocket diagnose {traces} -o page.html")
    elif network is None:
        note(f"Next: hocket tune {shlex.quote(str(output))} --workers 8 --bandwidth 100Gbit/s --latency 20us")
    else:
        sharded = " --architecture fsdp" if job.units else ""
        note(
            f"Next: hocket tune {shlex.quote(str(output))}{sharded}; as a page: "
            f"hocket diagnose {traces} -o page.html"
        )


def import_chakra(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="A Chakra execution trace of each rank (.et, .gz)."),
    ],
    output: Written,
    allow_no_gradients: Unplanned = False,
) -> None:
    """Chakra execution traces as a step; one that Hocket exported reads back equal."""
    from hocket.interop.chakra.chakra_step import import_chakra as run

    options.check_written(output, *traces)
    with progress("reading"):
        imported = run(traces, allow_no_gradients=allow_no_gradients)
    _put(imported, output)


def export_chakra(
    step: options.Step,
    output: Annotated[
        Path,
        option(
            "-o", "--output", panel=OUTPUT, metavar="FILE", help="The Chakra execution trace to write (.et)."
        ),
    ],
    plan: Annotated[
        Path | None, option(panel=PLANNING, metavar="FILE", help="A hocket.plan/1 file for all-reduce.")
    ] = None,
) -> None:
    """A step as a Chakra execution trace: operations, and an all-reduce for each parameter or as planned."""
    from hocket.document import write_bytes
    from hocket.graph import load_step
    from hocket.interop.chakra.chakra_export import chakra_bytes

    options.check_written(output, *options.inputs(step, plan))
    graph = load_step(step)
    write_bytes(chakra_bytes(graph, _plan(plan, graph)), output)
    note(f"{output}: {graph.num_operations} operations as nodes, durations in whole microseconds")


@dataclass(frozen=True, kw_only=True)
class StepRunOptions:
    """Options for a step that is simulated: its plan, its machines, and its draws."""

    plan: Annotated[
        Path | None,
        option(panel=PLANNING, metavar="FILE", help="Of a STEP: the hocket.plan/1 file it runs under."),
    ] = None
    workers: Annotated[
        int | None,
        option(panel=WORKERS, metavar="N", help="Of a STEP: workers that train together.", show_default="4"),
    ] = None
    servers: Annotated[
        int | None, option(panel=WORKERS, metavar="N", help="Of a STEP: parameter servers.", show_default="1")
    ] = None
    seed: Annotated[
        int | None,
        option(panel=GENERAL, metavar="N", min=0, max=2**63 - 1, help="Of a STEP: decides every draw."),
    ] = None


@grouped
def export_perfetto(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="TIMELINE|STEP", help="A hocket.timeline/1 or hocket.step/1 file.")
    ],
    output: Annotated[
        Path,
        option("-o", "--output", panel=OUTPUT, metavar="FILE", help="The trace to write (.json, .json.gz)."),
    ],
    run: StepRunOptions,
    links: LinkOptions,
) -> None:
    """A timeline, or a step that is simulated under a plan, as a trace for ui.perfetto.dev."""
    from hocket.document import read_document, write_json
    from hocket.graph.io import step_from_document
    from hocket.interop import TIMELINE_FORMAT, timeline_document

    options.check_written(output, *options.inputs(source, run.plan, links.network_file))
    document = read_document(source)  # once: it may be a pipe
    if isinstance(document, dict) and document.get("format") == TIMELINE_FORMAT:
        of_steps = {
            **{"plan": run.plan, "workers": run.workers, "servers": run.servers},
            **{"network": links.network_file, "bandwidth": links.bandwidth, "latency": links.latency},
            "seed": run.seed,
        }
        given = [f"--{name}" for name, value in of_steps.items() if value is not None]
        if given:
            raise HocketError(f"{source}: is a timeline, and {', '.join(given)} for a step; leave it out")
        timeline, written = _again(document, str(source))
        notes = []
    else:
        graph = step_from_document(document, str(source))
        schedule = _plan(run.plan, graph)
        if schedule is None:
            raise HocketError(f"{source}: is a step, which runs under a plan; give --plan FILE")
        servers = 1 if run.servers is None else run.servers
        options.check_servers(servers, schedule.architecture)
        network, of_network = described_network(
            context,
            options.WORKERS_ASSUMED if run.workers is None else run.workers,
            servers,
            "",
            None,
        )
        notes = [heading(applying(of_network, schedule.architecture))]
        timeline, row = _simulated(graph, schedule, network, 0 if run.seed is None else run.seed)
        written = timeline_document(timeline, row)
    write_json(written, output)
    for line in notes:
        note(line)
    note(f"{output}: {len(timeline.spans)} spans; open it at ui.perfetto.dev")


def _again(document: dict[str, Any], source: str) -> tuple[Timeline, dict[str, Any]]:
    """The timeline that was read, and its document as we write it, with the row of its run and its origin."""
    from hocket.cluster.results.recorded import is_recorded, recorded_document, recorded_from_document
    from hocket.interop import timeline_document, timeline_from_document

    kept = {"origin": document["origin"]} if "origin" in document else {}
    if is_recorded(document):
        timeline, cluster = recorded_from_document(document, source)
        return timeline, recorded_document(timeline, cluster) | kept
    timeline, row = timeline_from_document(document, source)
    return timeline, timeline_document(timeline, row) | kept


def _put(imported: ImportedStep, output: Path) -> None:
    from hocket.graph import save_step

    graph = imported.graph
    save_step(graph, output)
    for line in imported.notes:
        note(line)
    note(
        f"{output}: {graph.num_operations} operations, {graph.num_parameters} parameters,"
        f" {int(graph.parameter_bytes.sum()) / 2**20:.2f} MiB, sampled steps: {graph.num_samples}"
    )


def _plan(path: Path | None, graph: StepGraph) -> Plan | None:
    from hocket.graph import load_plan
    from hocket.graph.format_rules import check_plan

    if path is None:
        return None
    plan = load_plan(path)
    check_plan(plan, graph, str(path))
    return plan


def _simulated(graph: StepGraph, plan: Plan, network: Network, seed: int) -> tuple[Timeline, ResultRow]:
    from hocket.sim import simulate
    from hocket.tuner.policies import check_request

    check_request(graph, network, plan.architecture)
    result = simulate(graph, plan, network, seed=seed, timeline=True)
    assert result.timeline is not None
    return result.timeline, result.row
