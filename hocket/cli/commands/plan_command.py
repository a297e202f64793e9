"""``hocket plan``: order the transfers of a step."""

from __future__ import annotations

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
    assumptions,
    caution,
    option_setting,
    step_settings,
)
from hocket.cli.given_options import other_options
from hocket.cli.network_options import NetworkOptions
from hocket.cli.network_settings import described_network, link_text, usual_latency
from hocket.cli.next_command import measure_again
from hocket.cli.option_groups import grouped
from hocket.cli.panels import OUTPUT, option
from hocket.cli.planning_options import PolicyPlanningOptions
from hocket.cli.printing import note, print_json, progress
from hocket.cli.screen import as_sentence, command_line, show
from hocket.cli.step_screen import (
    STEP,
    beside_usual,
    clipping_answer,
    exact_remark,
    halves_remark,
    planned_by,
    remarks_on,
    step_sheet,
    train_command,
)
from hocket.errors import HocketError
from hocket.text import counted

if TYPE_CHECKING:
    from hocket.graph import Plan


@dataclass(frozen=True, kw_only=True)
class PlanOutput:
    """Options for what ``hocket plan`` writes and prints."""

    output: Annotated[
        Path | None,
        option(
            "-o", "--output", panel=OUTPUT, metavar="FILE", help="Where to write.", show_default="printed"
        ),
    ] = None
    wide: options.Wide = False


@grouped
def plan(
    context: typer.Context,
    step: options.Step,
    planning: PolicyPlanningOptions,
    machines: options.UsualWorkersOptions,
    net: NetworkOptions,
    out: PlanOutput,
    seed: options.Seed = 0,
) -> None:
    """Plan what is transferred in which order, with what the simulator expects of it."""
    from hocket.document import is_standard_output
    from hocket.graph import load_step, save_plan
    from hocket.graph.clipped_step import clipped_for
    from hocket.graph.io import plan_document
    from hocket.report.compared_rows import gains, usual_row
    from hocket.report.memory_verdict import memory_answers, memory_verdict, unknown_memory
    from hocket.report.sharded_verdict import sharded_memory_answer, sharded_remark
    from hocket.report.uncertain_gain import uncertain_gain
    from hocket.report.verdicts import on_workers, result_verdict
    from hocket.sim import simulate
    from hocket.tuner.policies import architecture_of

    policy, output = planning.policy, out.output
    if policy is None:
        raise HocketError(
            "a plan needs --policy NAME; hocket tune STEP -o plan.json ranks all policies and writes the best"
            " plan. See 'hocket plan --help'."
        )
    exchange = architecture_setting(context, policy)
    planning.check_sharded(exchange.value)
    options.check_servers(machines.servers, architecture_of(policy, exchange.value))
    num_workers = machines.num_workers(exchange.value)
    measured = load_step(step)
    network, of_network = described_network(
        context,
        num_workers,
        machines.servers,
        measured.device,
        measured.recorded,
        **usual_latency(context),
    )
    if output is not None:
        options.check_written(output, *options.inputs(step, net.network_file, net.cluster))
    graph = clipped_for(measured, exchange.value) if planning.clip else measured
    planned = planned_by(graph, network, policy, exchange.value, planning, seed)
    with progress("simulating") as report:
        row = planned.with_bounds(simulate(graph, planned.plan, network, seed=seed, progress=report).row)
    made = msgspec.structs.replace(planned.plan, predicted=row.predicted())
    settings = [exchange, SYNCHRONOUS, option_setting(context, "policy", policy)]
    settings += [*step_settings(context, network), *of_network]
    settings += other_options(context, settings)
    rows = beside_usual(context, graph, network, row, iterations=20)
    where = on_workers(row, link_text(network, row.workers), clip=planning.clip)
    sharded = made.architecture == "fsdp"
    answered = memory_answers(
        None if sharded else memory_verdict(graph, 1 if made.architecture == "ps" else num_workers),
        [
            result_verdict(row, usual_row(rows), where),
            *uncertain_gain(graph, rows),
            *exact_remark(graph, [row]),
            *sharded_memory_answer(graph, network, made, planning.memory_bytes()),
            *clipping_answer(context, measured, network, rows),
        ],
    )
    asked = assumptions(graph, applying(settings, made.architecture))
    if output is None or is_standard_output(output):
        if output is None:
            print_json(plan_document(made))
        else:
            save_plan(made, output)
        for answer in answered:
            note(as_sentence(answer))
        note(asked)
        return
    save_plan(made, output)
    show(
        [*answered, *caution(graph)],
        assumptions=asked,
        sheets=[step_sheet(rows, of=row.policy, wide=out.wide)],
        remarks=[
            *sharded_remark(graph, made),
            *halves_remark(made),
            *([] if sharded else unknown_memory(graph)),
            *remarks_on(graph, exchange.value, wide=out.wide),
        ],
        following=measure_again(context, graph)
        or (
            train_command(context, graph, made, network, str(output))
            if gains(rows)
            else command_line(context, "hocket", "tune", str(step), like=STEP)
        ),
    )
    note(f"{output}: {_transfers(made)}")


def _transfers(made: Plan) -> str:
    from hocket.graph.plan import transfers_text

    if made.architecture == "fsdp":
        return transfers_text(made)
    if made.architecture == "ps":
        return f"{counted(len(made.pulls), 'pull')}, {counted(len(made.pushes), 'push', 'pushes')}"
    return counted(len(made.reductions), "reduction")
