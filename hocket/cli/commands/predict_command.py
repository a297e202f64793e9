"""``hocket predict``: the throughput of any number of workers and servers, before they are rented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from hocket.cli import options
from hocket.cli.answer_settings import (
    AnswerSetting,
    applying,
    architecture_setting,
    assumed,
    assumptions,
    caution,
    caveat_setting,
    is_given,
    option_setting,
    plan_setting,
    window_setting,
)
from hocket.cli.given_options import given, other_options
from hocket.cli.list_options import counts
from hocket.cli.network_options import window_bytes
from hocket.cli.network_settings import (
    as_reduced,
    described_network,
    link_text,
    recorded_network,
    usual_latency,
)
from hocket.cli.option_groups import grouped
from hocket.cli.predict_machines import PredictNetwork, PredictWorkers
from hocket.cli.predict_options import PredictOutput, PredictPlanning, PredictSimulation
from hocket.cli.prediction_next_command import after_prediction
from hocket.cli.prediction_screen import (
    Answer,
    beside_clipped,
    by_device,
    crowded_servers,
    partly_filled,
    show_rows,
)
from hocket.cli.printing import note, print_json, progress
from hocket.errors import HocketError
from hocket.text import capitalized

if TYPE_CHECKING:
    from hocket.graph import Plan, StepGraph
    from hocket.network import Network
    from hocket.predictor import Prediction, Predictions
    from hocket.report.memory_verdict import MemoryVerdict
    from hocket.report.prediction_measured import MeasuredThroughput

_MOST_CONFIGURATIONS = 10_000


@grouped
def predict(
    context: typer.Context,
    step: options.Step,
    machines: PredictWorkers,
    planning: PredictPlanning,
    net: PredictNetwork,
    simulation: PredictSimulation,
    output: PredictOutput,
) -> None:
    """Predict throughput for any number of workers from one worker's profile, and where it saturates."""
    from hocket.graph import load_step
    from hocket.predictor.answer import verdicts
    from hocket.predictor.idle_racks import idle_racks_note
    from hocket.predictor.node_copies import copy_a_node
    from hocket.predictor.prediction_request import Request
    from hocket.predictor.racks import seen_by_all_reduce
    from hocket.predictor.step_exchange import exchange_line
    from hocket.report.memory_verdict import memory_answers, memory_verdict, memory_words, unknown_memory
    from hocket.report.prediction_measured import load_points, model_errors
    from hocket.text import counted

    output.check()
    num_workers, num_servers = _configurations(machines, simulation.repeats)
    output.check_files(options.inputs(step, planning.plan, net.network_file, net.cluster, output.measured))
    graph = simulation.varied(load_step(step), max(num_workers))
    schedule = _given_plan(graph, planning)
    exchange = architecture_setting(context, planning.policy, schedule)
    network, of_network = described_network(
        context, 1, 1, graph.device, graph.recorded, **usual_latency(context)
    )
    planning.check_sharded(exchange.value)
    from hocket.graph.plan import ARCHITECTURE_NAMES

    on_servers = exchange.value == "ps"
    if not on_servers and num_servers != [1]:
        raise HocketError(
            f"servers '{machines.servers}': {ARCHITECTURE_NAMES[exchange.value]} has none to choose; leave"
            " them out"
        )
    asked = {(w, m if on_servers else 0) for w in num_workers for m in num_servers}
    points = [] if output.measured is None else load_points(output.measured, asked)
    described = net.machines(machines, network)
    request: dict[str, Any] = {
        "mode": planning.mode,
        "architecture": exchange.value,
        "barrier": planning.barrier,
        "policy": planning.policy,
        "plan": schedule,
        "updates": planning.updates,
        "window_bytes": window_bytes(net.window),
        "machines": described,
        "steps": simulation.steps,
        "skip": simulation.skipped(),
        "max_steps": simulation.max_steps,
        "seed": simulation.seed,
        "fusion_bytes": planning.fusion_bytes(),
        "budget_s": planning.budget_s(),
        "clip": planning.clip,
        "memory_bytes": planning.memory_bytes(),
    }
    numbers = {"workers": num_workers, "servers": num_servers, "repeats": simulation.repeats}
    numbers |= {"engine": simulation.engine, "price_per_worker_hour": machines.price_per_worker_hour}
    numbers |= {"price_per_server_hour": machines.price_per_server_hour}
    checked = [] if on_servers else _checked(context, graph, network, num_workers)
    rows = _run(graph, network, request, numbers, output)
    idle = None
    if not on_servers:
        of_network = as_reduced(of_network, [seen_by_all_reduce(described, network, w) for w in num_workers])
        idle = idle_racks_note(Request(graph=graph, network=network, **request), num_workers)
    settings = [exchange, *_settings(context, rows, planning, schedule), *of_network]
    settings += [*other_options(context, settings), *caveat_setting(graph)]
    if not is_given(context, "skip"):
        settings.append(option_setting(context, "skip", request["skip"], ""))
    sharded = exchange.value == "fsdp"
    memory = None if sharded else memory_verdict(graph, 1 if on_servers else max(num_workers))
    copied = copy_a_node(graph, network, request, rows)
    copies = [] if copied is None else [copied.text]
    more = [*map(capitalized, checked), *_beside(graph, network, request, rows)]
    link = _link(network, planning, max(num_workers)) + (", one copy among all" if copies else "")
    shown = by_device(graph, rows)
    told = [*map(capitalized, verdicts(shown, link)), *more]
    told = [*copies, *told] if copied is not None and copied.decides else [told[0], *copies, *told[1:]]
    most = max(rows, key=lambda row: (row.workers, row.servers))
    exchanged = capitalized(exchange_line(graph, network, request, most))
    answer = Answer(
        memory_answers(memory, told),
        "\n".join(
            filter(None, [_assumed(graph, network, rows, applying(settings, exchange.value)), exchanged])
        ),
        [*crowded_servers(graph, rows), *memory_words(graph), *([] if sharded else unknown_memory(graph))],
        after_prediction(context, graph, network, rows, copied),
    )
    _write_page(output, rows, shown, points, answer)
    if output.json:
        _print_json(context, rows, settings, exchange.value, memory)
        for line in [*copies, *more]:
            note(line)
    else:
        gpus = 1 if network.nodes is None else network.nodes.gpus
        show_rows(context, shown, points, answer._replace(lines=[*answer.lines, *caution(graph)]), gpus)
    if idle is not None:
        note(idle)
    if (partly := partly_filled(network, num_workers)) is not None:
        note(partly)
    errors = [f"{error.model} {error.mean:.1%}" for error in model_errors(rows, points)]
    if errors:
        note(
            f"{output.measured}: mean error at {counted(len(points), 'measured point')}: {', '.join(errors)}"
        )
    if output.plot is not None:
        note(f"{output.plot}: open it in a browser")


def _configurations(machines: PredictWorkers, repeats: int) -> tuple[list[int], list[int]]:
    """The numbers of workers and of servers that are asked for; refused where they are too many."""
    num_workers, num_servers = counts(machines.workers, "workers"), counts(machines.servers, "servers")
    configurations = len(num_workers) * len(num_servers) * repeats
    if configurations > _MOST_CONFIGURATIONS:
        raise HocketError(
            f"{configurations} combinations and repeats are more than {_MOST_CONFIGURATIONS}; ask for fewer"
        )
    return num_workers, num_servers


def _given_plan(graph: StepGraph, planning: PredictPlanning) -> Plan | None:
    """The plan of a file, which fits the step and the options beside it."""
    from hocket.graph import load_plan
    from hocket.graph.format_rules import check_plan

    if planning.plan is None:
        return None
    schedule = load_plan(planning.plan)
    check_plan(schedule, graph, str(planning.plan))
    planning.check_beside(schedule, planning.plan)
    return schedule


def _checked(
    context: typer.Context, graph: StepGraph, network: Network, num_workers: Sequence[int]
) -> list[str]:
    """A line on the job that the step was recorded from, recorded and predicted; none where there is none.

    Where they differ by too much, on the network that was recorded, other numbers of workers are refused.
    """
    from dataclasses import replace

    from hocket.predictor.recorded_check import MOST_APART, check_recorded

    if graph.recorded is None:
        return []
    check = check_recorded(graph, replace(network, num_workers=graph.recorded.workers))
    if check is None:
        return []
    others = [workers for workers in num_workers if workers != graph.recorded.workers]
    as_recorded = recorded_network(context, graph.recorded) is not None
    if not check.agrees and others and as_recorded and not context.params["anyway"]:
        raise HocketError(
            f"{context.params['step']}: {check.line}; a prediction that is off by more than {MOST_APART:.0%} "
            f"says nothing of {others[0]} workers; describe the network, or give --anyway"
        )
    return [check.line if as_recorded else f"{check.line} (on the network that is given)"]


def _run(
    graph: StepGraph,
    network: Network,
    request: dict[str, Any],
    numbers: dict[str, Any],
    output: PredictOutput,
) -> Predictions:
    """Predict, and write the trace: all that takes long comes before the first output.

    An interrupt leaves none of them.
    """
    from hocket.document import write_json
    from hocket.interop import timeline_document
    from hocket.predictor import predict as run

    drawn = None
    if output.timeline is not None:
        from hocket.predictor.synthetic_trace import trace

        most = {"workers": max(numbers["workers"]), "servers": max(numbers["servers"])}
        with progress("tracing"):
            drawn = trace(graph, network, **most, **request)
    with progress("predicting") as report:
        rows = run(graph, network, **numbers, progress=report, **request)
    if output.timeline is not None and drawn is not None:
        write_json(timeline_document(drawn), output.timeline)
    return rows


def _write_page(
    output: PredictOutput,
    rows: Predictions,
    shown: Sequence[Prediction],
    points: Sequence[MeasuredThroughput],
    answer: Answer,
) -> None:
    """Write the page that is asked for, of ``rows`` as they are ``shown``, with the terminal's answers."""
    if output.plot is None:
        return
    from hocket.document import write_whole
    from hocket.report.prediction_page import PageAnswer, render_prediction

    page = render_prediction(
        shown,
        title=rows.title,
        setup=rows.setup,
        caveat=rows.caveat,
        points=points,
        answer=PageAnswer(answer.lines, answer.assumptions, answer.following),
    )
    write_whole(page.encode(), output.plot)


def _beside(
    graph: StepGraph, network: Network, request: dict[str, Any], rows: Sequence[Prediction]
) -> list[str]:
    """Lines on what else may decide: the size of updates, memory, clipping, and larger updates."""
    from hocket.predictor.larger_updates import larger_update, update_sizes

    said = [capitalized(sizes)] if (sizes := update_sizes(graph, rows)) else []
    if rows[0].architecture == "fsdp":
        return said + _memory_of_fewest(graph, network, request, min(row.workers for row in rows))
    said += [beside_clipped(graph, network, request, rows)] if request["clip"] else []
    if rows[0].mode == "sync" and (larger := larger_update(graph, network, request, rows)):
        said.append(capitalized(larger))
    return said


def _memory_of_fewest(graph: StepGraph, network: Network, request: dict[str, Any], workers: int) -> list[str]:
    """A line on the memory of the fewest workers' devices, whose shards are the largest."""
    from dataclasses import replace

    from hocket.report.sharded_verdict import sharded_memory_answer
    from hocket.text import counted
    from hocket.tuner import Exchange, make_plan

    fewest = replace(network, num_workers=workers)
    limit = request["memory_bytes"]
    plan = request["plan"]
    if plan is None:
        exchange = Exchange(architecture="fsdp", memory_bytes=limit)
        plan = make_plan(graph, fewest, request["policy"] or "fsdp", exchange, seed=request["seed"]).plan
    said = sharded_memory_answer(graph, fewest, plan, limit)
    return [f"With {counted(workers, 'worker')} {each}" for each in said]


def _link(network: Network, planning: PredictPlanning, num_workers: int) -> str:
    """The network of so many workers in words, as far as an answer names it, and clipping."""
    return link_text(network, num_workers) + (", clipped by norm" if planning.clip else "")


def _assumed(
    graph: StepGraph, network: Network, rows: Sequence[Prediction], settings: Sequence[AnswerSetting]
) -> str:
    """The line of assumptions, with what each worker is."""
    from hocket.predictor.larger_updates import update_clause

    each = "one device, a link of its own" if network.nodes is None else "one GPU"
    most = max(row.workers for row in rows)
    if rows[0].mode == "sync" and graph.num_samples == 1 and most > 1:
        each += ", all steps equally long, so that none waits for a slower one (--jitter 0.05: they vary)"
    return f"{assumptions(graph, settings)}{update_clause(graph, rows)}; each worker: {each}"


_UPDATES = {
    "arrival": "updates on arrival (of different workers at once), each as long as on the profiled worker",
    "commit": "updates on commit (one worker's after another's), each as long as on the profiled worker",
}


def _settings(
    context: typer.Context, rows: Sequence[Prediction], planning: PredictPlanning, schedule: Plan | None
) -> list[AnswerSetting]:
    """The settings that rows have, beside those of the network."""
    from hocket.predictor.prepared import usual_window_bytes

    asked = window_bytes(context.params["window"])
    return [
        option_setting(context, "mode", rows[0].mode),
        plan_setting(context, rows[0].policy if planning.policy is None else planning.policy, schedule),
        window_setting(context, usual_window_bytes(rows[0].mode) if asked is None else asked),
        option_setting(context, "updates", planning.updates, _UPDATES[planning.updates]),
    ]


def _print_json(
    context: typer.Context,
    rows: Sequence[Prediction],
    settings: list[AnswerSetting],
    architecture: str,
    memory: MemoryVerdict | None,
) -> None:
    from hocket.predictor.answer import answers

    asked_for = {
        "assumed": assumed(context, settings, architecture),
        "given": given(context, settings, architecture),
        **({} if memory is None else {"memory": memory.document()}),
    }
    print_json([{**msgspec.to_builtins(row), **asked_for} for row in rows])
    for line in answers(rows):
        note(line)
