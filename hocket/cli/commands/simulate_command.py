"""``hocket simulate``: what a policy or a plan makes of a step."""

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
    assumed,
    assumptions,
    caution,
    caveat_setting,
    plan_setting,
    step_settings,
)
from hocket.cli.given_options import given, other_options
from hocket.cli.network_options import NetworkOptions
from hocket.cli.network_settings import described_network, link_text, usual_latency
from hocket.cli.next_command import measure_again
from hocket.cli.option_groups import grouped
from hocket.cli.panels import OUTPUT, option
from hocket.cli.planning_options import PlanOrPlanningOptions
from hocket.cli.printing import print_json, progress
from hocket.cli.screen import command_line, show
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

if TYPE_CHECKING:
    from hocket.graph import Plan, StepGraph
    from hocket.network import Network
    from hocket.tuner import PlannedPolicy


@dataclass(frozen=True, kw_only=True)
class SimulateOutput(options.PrintOptions):
    """Options for what ``hocket simulate`` prints and writes."""

    timeline: Annotated[
        Path | None,
        option("--timeline", panel=OUTPUT, metavar="FILE", help="Write a trace of one step for Perfetto."),
    ] = None


@grouped
def simulate(
    context: typer.Context,
    step: options.Step,
    planning: PlanOrPlanningOptions,
    machines: options.UsualWorkersOptions,
    net: NetworkOptions,
    simulation: options.SimulationOptions,
    output: SimulateOutput,
) -> None:
    """Simulate training steps under one policy: how long they take and how far from the limit that is."""
    from hocket.document import write_json
    from hocket.graph import load_plan, load_step
    from hocket.graph.clipped_step import clipped_for
    from hocket.interop import timeline_document
    from hocket.origin import origin
    from hocket.planner.named_planners import USUAL
    from hocket.report.compared_rows import gains, usual_row
    from hocket.report.sharded_verdict import sharded_memory_answer, sharded_remark
    from hocket.report.uncertain_gain import uncertain_gain
    from hocket.report.verdicts import on_workers, result_verdict
    from hocket.sim import simulate as run
    from hocket.tuner.policies import architecture_of

    output.check()
    policy, plan, timeline = planning.policy, planning.plan, output.timeline
    if policy is not None and plan is not None:
        raise HocketError("a simulation takes either --policy NAME or --plan FILE; leave one of them out")
    if timeline is not None:
        options.check_beside_result(timeline, *options.inputs(step, plan, net.network_file, net.cluster))
    schedule = None if plan is None else load_plan(plan)
    exchange = architecture_setting(context, policy, schedule)
    planning.check_sharded(exchange.value)
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
    graph = clipped_for(measured, exchange.value) if planning.clip else measured
    if schedule is not None:
        planned = _given_plan(graph, network, schedule, planning)
    else:
        policy = policy or USUAL[exchange.value]
        options.check_servers(machines.servers, architecture_of(policy, exchange.value))
        planned = planned_by(graph, network, policy, exchange.value, planning, simulation.seed)
    with progress("simulating") as report:
        result = run(
            graph,
            planned.plan,
            network,
            iterations=simulation.iterations,
            seed=simulation.seed,
            random_order=planned.drawn_anew,
            timeline=timeline is not None,
            progress=report,
        )
    row = planned.with_bounds(result.row)
    made = {"origin": msgspec.to_builtins(origin(network))}
    if timeline is not None:
        assert result.timeline is not None
        write_json(timeline_document(result.timeline, row) | made, timeline)
    ordered = plan_setting(context, policy, schedule)
    settings = [exchange, SYNCHRONOUS, ordered, *step_settings(context, network), *of_network]
    settings += [*other_options(context, settings), *caveat_setting(graph)]
    if output.json:
        asked_for = {
            "assumed": assumed(context, settings, row.architecture),
            "given": given(context, settings, row.architecture),
        }
        print_json({**msgspec.to_builtins(row), **made, **asked_for})
        return
    rows = beside_usual(context, graph, network, row, simulation.iterations)
    where = on_workers(row, link_text(network, row.workers), clip=planning.clip)
    show(
        [
            result_verdict(row, usual_row(rows), where),
            *uncertain_gain(graph, rows),
            *exact_remark(graph, [row]),
            *sharded_memory_answer(graph, network, planned.plan, planning.memory_bytes()),
            *clipping_answer(context, measured, network, rows),
            *caution(graph),
        ],
        assumptions=assumptions(graph, applying(settings, row.architecture)),
        sheets=[step_sheet(rows, of=row.policy, wide=output.wide)],
        remarks=[
            *sharded_remark(graph, planned.plan),
            *halves_remark(planned.plan),
            *remarks_on(graph, row.architecture, wide=output.wide),
        ],
        following=measure_again(context, graph)
        or (
            train_command(context, graph, planned.plan, network, str(plan))
            if plan is not None and gains(rows)
            else command_line(context, "hocket", "tune", str(step), like=STEP)
        ),
    )


def _given_plan(
    graph: StepGraph, network: Network, schedule: Plan, planning: PlanOrPlanningOptions
) -> PlannedPolicy:
    """The plan of a file, which fits the step, the network, and the options beside it."""
    from hocket.graph.format_rules import check_plan
    from hocket.tuner import PlannedPolicy
    from hocket.tuner.policies import check_request

    assert planning.plan is not None
    check_plan(schedule, graph, str(planning.plan))
    planning.check_beside(schedule, planning.plan)
    if planning.fusion_bytes():
        raise HocketError(f"fusion {planning.fusion}: {planning.plan} has its own batches; leave it out")
    options.check_servers(network.num_servers, schedule.architecture)
    check_request(graph, network, schedule.architecture)
    return PlannedPolicy(plan=schedule)
