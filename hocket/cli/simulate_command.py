"""``hocket simulate``: what a policy or a plan makes of a step."""

from __future__ import annotations

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import (
    SYNCHRONOUS,
    applying,
    architecture_setting,
    assumed,
    assumptions,
    described_network,
    plan_setting,
    step_settings,
)
from hocket.cli.given import given, other_options
from hocket.cli.printing import print_json, progress
from hocket.cli.screen import command_line, show
from hocket.cli.step_screen import STEP, beside_usual, remarks_on, step_sheet, train_command
from hocket.errors import HocketError
from hocket.text import scaled_text


def simulate(
    context: typer.Context,
    step: options.Step,
    policy: options.PolicyChoice = None,
    plan: options.PlanFile = None,
    architecture: options.Architecture = None,
    barrier: options.Barrier = None,
    workers: options.WorkersOrUsual = None,
    servers: options.Servers = 1,
    network_file: options.NetworkPath = None,
    bandwidth: options.Bandwidth = None,
    latency: options.Latency = None,
    parse_alpha: options.ParseAlpha = None,
    parse_beta: options.ParseBeta = None,
    pattern: options.PatternName = None,
    window: options.Window = None,
    fusion: options.Fusion = "0B",
    budget: options.Budget = "10s",
    iterations: options.Iterations = 20,
    seed: options.Seed = 0,
    wide: options.Wide = False,
    json: options.Json = False,
    timeline: options.Timeline = None,
) -> None:
    """Simulate training steps under one policy: how long they take and how far from the limit that is."""
    from hocket.document import write_json
    from hocket.graph import load_plan, load_step
    from hocket.graph.format_rules import check_plan
    from hocket.interop import timeline_document
    from hocket.network import parse_duration
    from hocket.origin import origin
    from hocket.report.verdicts import on_workers, result_verdict, usual_row
    from hocket.sim import simulate as run
    from hocket.tuner import PlannedPolicy, make_plan
    from hocket.tuner.policies import architecture_of, check_request

    options.check_printed(json, wide)
    if (policy is None) == (plan is None):
        raise HocketError("a simulation takes either --policy NAME or --plan FILE; give one of them")
    fusion_bytes = options.fusion_bytes_of(fusion)
    if timeline is not None:
        options.check_beside_result(timeline, *options.inputs(step, plan, network_file))
    schedule = None if plan is None else load_plan(plan)
    exchange = architecture_setting(context, policy, schedule)
    num_workers = options.num_workers(workers, exchange.value)
    network, of_network = described_network(context, num_workers, servers)
    graph = load_step(step)
    if schedule is not None:
        check_plan(schedule, graph, str(plan))
        if architecture not in (None, schedule.architecture):
            raise HocketError(f"{plan} is for '{schedule.architecture}', not '{architecture}'; leave it out")
        if barrier is not None:
            raise HocketError(f"barrier '{barrier}': {plan} has its own; change it there")
        if fusion_bytes:
            raise HocketError(f"fusion {fusion}: {plan} has its own batches; leave it out")
        options.check_servers(servers, schedule.architecture)
        check_request(graph, network, schedule.architecture)
        planned = PlannedPolicy(plan=schedule)
    else:
        assert policy is not None
        options.check_servers(servers, architecture_of(policy, exchange.value))
        with progress(f"planning by {policy}") as report:
            planned = make_plan(
                graph,
                network,
                policy,
                architecture=exchange.value,
                barrier=barrier,
                seed=seed,
                fusion_bytes=fusion_bytes,
                budget_s=parse_duration(budget),
                progress=lambda spent_s, _: report(spent_s, parse_duration(budget)),
            )
    with progress("simulating") as report:
        result = run(
            graph,
            planned.plan,
            network,
            iterations=iterations,
            seed=seed,
            random_order=planned.drawn_anew,
            timeline=timeline is not None,
            progress=report,
        )
    row = planned.judged(result.row)
    made = {"origin": msgspec.to_builtins(origin(network))}
    if timeline is not None:
        assert result.timeline is not None
        write_json(timeline_document(result.timeline, row) | made, timeline)
    ordered = plan_setting(context, policy, schedule)
    settings = [exchange, SYNCHRONOUS, ordered, *step_settings(context, network), *of_network]
    settings += other_options(context, settings)
    if json:
        asked_for = {
            "assumed": assumed(context, settings, row.architecture),
            "given": given(context, settings, row.architecture),
        }
        print_json({**msgspec.to_builtins(row), **made, **asked_for})
        return
    rows = beside_usual(context, graph, network, row, iterations)
    show(
        [result_verdict(row, usual_row(rows), on_workers(row, scaled_text(network.bandwidth_bps, "bit/s")))],
        assumptions=assumptions(graph, applying(settings, row.architecture)),
        sheets=[step_sheet(rows, of=row.policy, wide=wide)],
        remarks=remarks_on(graph, wide=wide),
        following=command_line(context, "hocket", "tune", str(step), like=STEP)
        if plan is None
        else train_command(context, graph, planned.plan, network, str(plan)),
    )
