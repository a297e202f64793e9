"""A parameter-server step with a barrier at its end: the shortest one.

All workers do the same at the same time, so one stands for all, with its share of the servers' interfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ortools.sat.python import cp_model

from hocket.errors import HocketError
from hocket.graph import Plan, Pull, Push, StepGraph
from hocket.network import Network, assign_servers, fair_share_bps
from hocket.planner.exact.constraint_model import (
    ModelledStep,
    ModelSolution,
    SerialChannel,
    apart_by_intervals,
    channel_alone,
    channel_in_batches,
    in_ticks,
    solver_for,
    work_of,
)


def shortest_step(
    graph: StepGraph,
    network: Network,
    *,
    evaluate: Callable[[Plan], float],
    time_limit_s: float,
    seed: int,
) -> ModelSolution:
    """The plan whose step ends first."""
    work = work_of(graph)
    home = assign_servers(graph.parameter_bytes.tolist(), network.num_servers).tolist()
    place = _server_of_updates(work, home)
    n, p = graph.num_operations, graph.num_parameters
    transfers_s = graph.parameter_bytes * 8 / fair_share_bps(network)
    times = in_ticks(
        [*graph.durations_s.mean(axis=1), *transfers_s, network.startup_s], [1] * n + [2] * p + [2 * p]
    )
    ticks, transfer, startup = times.counts[:n], times.counts[n:-1], times.counts[-1]
    horizon = times.horizon

    model = cp_model.CpModel()
    start = [model.new_int_var(0, horizon, "") for _ in range(n)]
    end = [start[i] + ticks[i] for i in range(n)]
    step_end = model.new_int_var(0, horizon, "")
    pulls, pushes = {}, {}
    for s in range(network.num_servers):
        cost = {i: transfer[i] for i in range(p) if home[i] == s}
        pulls[s] = _channel(model, startup, cost, horizon)
        trained = {i: cost[i] for i in work.trained if home[i] == s}
        if trained:
            pushes[s] = _channel(model, startup, trained, horizon)
    pulled = {i: arrive for channel in pulls.values() for i, arrive in channel.arrive.items()}
    leaving = {i: leave for channel in pushes.values() for i, leave in channel.leave.items()}
    pushed = {i: arrive for channel in pushes.values() for i, arrive in channel.arrive.items()}

    apart_by_intervals(model, [(start[i], ticks[i]) for i in work.main])
    for s in range(network.num_servers):
        apart_by_intervals(model, [(start[i], ticks[i]) for i in work.updates if place[i] == s])
    for i in range(n):
        for j in graph.inputs.row(i).tolist():
            model.add(start[i] >= end[j])
    for i in work.main:
        for parameter in graph.reads.row(i).tolist():
            model.add(start[i] >= pulled[parameter])
    for parameter in work.trained:
        for i in work.makers[parameter]:
            model.add(leaving[parameter] >= end[i])
    for i in work.updates:
        for parameter in work.awaited[i]:
            model.add(start[i] >= pushed[parameter])
    for last in [*end, *pulled.values(), *pushed.values()]:
        model.add(step_end >= last)
    model.minimize(step_end)
    solver = solver_for(time_limit_s, seed)
    status = solver.solve(model)
    position = {i: k for k, i in enumerate(work.main)}
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        order = sorted(
            work.main, key=lambda i: (solver.value(start[i]), solver.value(start[i]) + ticks[i], position[i])
        )
        plan = _plan(graph, order, _in_order(solver, pulls), _in_order(solver, pushes))
    else:
        # Not even a schedule in that time: program order is one, and the bound holds all the same.
        last_maker = {i: max(position[j] for j in work.makers[i]) for i in work.trained}
        alone = [[i] for i in sorted(work.trained, key=last_maker.__getitem__)]
        plan = _plan(graph, work.main, [[i] for i in range(p)], alone)
    objective_s = evaluate(plan)
    bound_s = min(objective_s, max(0.0, solver.best_objective_bound * times.tick_s - times.error_s))
    return ModelSolution(
        plan=plan,
        status="optimal" if objective_s - bound_s <= 2 * times.error_s + 1e-9 * objective_s else "feasible",
        objective_s=objective_s,
        bound_s=bound_s,
    )


def _plan(graph: StepGraph, order: list[int], pulls: list[list[int]], pushes: list[list[int]]) -> Plan:
    names = graph.parameter_names
    return Plan(
        policy="exact",
        model=graph.model,
        architecture="ps",
        pulls=tuple(
            Pull(parameters=tuple(names[i] for i in batch), priority=k) for k, batch in enumerate(pulls)
        ),
        pushes=tuple(Push(parameters=tuple(names[i] for i in batch)) for batch in pushes),
        compute_order=tuple(graph.operation_names[i] for i in order),
        issue="listed",
    )


def _channel(model: cp_model.CpModel, startup: int, ticks: Mapping[int, int], horizon: int) -> SerialChannel:
    if startup == 0:
        return channel_alone(model, ticks, horizon, apart_by_intervals)
    return channel_in_batches(model, [(startup, ticks)], horizon)


def _in_order(solver: cp_model.CpSolver, channels: Mapping[int, SerialChannel]) -> list[list[int]]:
    """The batches of all servers by their start; among those of one server the order is the channel's."""
    batches = [
        (start, server, k, batch)
        for server, channel in channels.items()
        for k, (start, batch) in enumerate(channel.batches(solver))
    ]
    return [batch for _, _, _, batch in sorted(batches)]


def _server_of_updates(work: ModelledStep, home: list[int]) -> dict[int, int]:
    """The server of each update: of the first parameter it reads, else of its first input, else server 0."""
    graph = work.graph
    place: dict[int, int] = {}
    for i in work.updates:
        near = [home[p] for p in graph.reads.row(i).tolist()]
        for j in graph.inputs.row(i).tolist():
            near += [place[j]] if j in place else [home[p] for p in graph.produces.row(j).tolist()]
        place[i] = near[0] if near else 0
    return place


def check_updates(graph: StepGraph, network: Network) -> None:
    """Refuse updates that wait for updates on other servers.

    A server takes the first update that is ready. Where nothing else waits for updates, every order without a
    pause ends at the same time, so the model may choose; across servers it would promise more.

    Raises
    ------
    HocketError
        Naming the update.
    """
    work = work_of(graph)
    place = _server_of_updates(
        work, assign_servers(graph.parameter_bytes.tolist(), network.num_servers).tolist()
    )
    for i in work.updates:
        for j in graph.inputs.row(i).tolist():
            if place.get(j, place[i]) != place[i]:
                raise HocketError(
                    f"update '{graph.operation_names[i]}' waits for one on another server, and no plan "
                    "orders those; use one server"
                )
