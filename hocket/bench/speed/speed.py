"""Speeds of the planners, the simulator and the predictor, by the clock.

Everything takes turns: a repeat is one call of each, so that a machine that slows down slows all of them
alike. Compiling is timed apart, on a small step; what is timed afterwards is compiled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Literal, TypeVar

import msgspec

from hocket.bench.speed.timed_steps import BRANCHES, inception_like
from hocket.bench.training.training_statistics import Quartiles, spread
from hocket.errors import HocketError, UnknownNameError
from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.planner import POLICIES, Architecture, plan
from hocket.predictor import predict
from hocket.sim import simulate

Engine = Literal["simulate", "predict"]
Progress = Callable[[int, int], None]
Key = TypeVar("Key")

_MOST_REPEATS = 10_000
_COMPILED_WITH = 16  # operations for each parameter of the step that kernels are compiled with


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one step: seconds from a graph in memory to a plan in memory.

    ``plan_s``: over ``repeats_s``; ``per_operation_s``: its median over ``operations``. ``compile_s``: what
    the first call of the policy takes beyond the second: compiling, or reading numba's cache on disk.
    """

    graph: str
    operations: int
    parameters: int
    policy: str
    architecture: Architecture
    plan_s: Quartiles
    per_operation_s: float
    repeats_s: list[float]
    compile_s: float


class SimulationRow(msgspec.Struct, frozen=True, kw_only=True):
    """One engine on one step and number of workers; whole calls, but the predictor lowers a plan once.

    ``simulate`` runs ``steps`` synchronous steps, ``predict`` ``steps`` of each worker. ``step_s``: seconds
    of the clock for one step of all workers, over ``repeats_s``, which are whole calls. ``events``:
    operations and transfers of a call; ``events_per_s``: of the clock. ``compile_s``: as in
    :class:`PlanRow`.
    """

    graph: str
    operations: int
    parameters: int
    engine: Engine
    policy: str
    architecture: Architecture
    workers: int
    servers: int
    steps: int
    events: int
    step_s: Quartiles
    events_per_s: Quartiles
    repeats_s: list[float]
    compile_s: float


def bench_plan(
    graphs: Mapping[str, StepGraph],
    network: Network,
    policies: Sequence[str],
    *,
    repeats: int = 7,
    progress: Progress | None = None,
) -> list[PlanRow]:
    """Time each of ``policies`` on each of ``graphs``, ``repeats`` times in turn.

    ``progress`` is called with plans made and plans in all.

    Raises
    ------
    HocketError
        For an unknown policy, one that is named twice, and senseless repeats.
    """
    _check(repeats, policies)
    small = _small(network)
    calls = {
        (name, policy): _planning(graph, network, policy)
        for name, graph in graphs.items()
        for policy in policies
    }
    compile_s = {policy: _compiling_s(_planning(small, network, policy)) for policy in policies}
    taken_s = _in_turns(calls, repeats, progress)
    return [
        PlanRow(
            graph=name,
            operations=graphs[name].num_operations,
            parameters=graphs[name].num_parameters,
            policy=policy,
            architecture=POLICIES[policy].architecture,
            plan_s=spread(repeats_s),
            per_operation_s=median(repeats_s) / graphs[name].num_operations,
            repeats_s=repeats_s,
            compile_s=compile_s[policy],
        )
        for (name, policy), repeats_s in taken_s.items()
    ]


def bench_simulation(
    graphs: Mapping[str, StepGraph],
    networks: Sequence[Network],
    policy: str,
    *,
    iterations: int = 10,
    steps: int = 100,
    repeats: int = 5,
    progress: Progress | None = None,
) -> list[SimulationRow]:
    """Time the simulator and the predictor on each of ``graphs`` and ``networks``, planned by ``policy``.

    ``iterations`` steps are simulated and ``steps`` of each worker predicted, ``repeats`` times in turn.
    ``progress`` is called with calls made and calls in all.

    Raises
    ------
    HocketError
        For an unknown policy, and senseless numbers.
    """
    _check(repeats, [policy])
    small = _small(networks[0])
    length: dict[Engine, int] = {"simulate": iterations, "predict": steps}
    compile_s: dict[Engine, float] = {}
    for engine in length:
        compile_s[engine] = sum(
            _compiling_s(_running(engine, small, plan(small, network, policy), network, length[engine]))
            for network in networks
        )
    calls: dict[tuple[str, int, Engine], Callable[[], int]] = {}
    for name, graph in graphs.items():
        for k, network in enumerate(networks):
            made = plan(graph, network, policy)
            for engine in length:
                calls[name, k, engine] = _running(engine, graph, made, network, length[engine])
    events: dict[tuple[str, int, Engine], int] = {key: call() for key, call in calls.items()}
    taken_s = _in_turns(calls, repeats, progress)
    return [
        SimulationRow(
            graph=name,
            operations=graphs[name].num_operations,
            parameters=graphs[name].num_parameters,
            engine=engine,
            policy=policy,
            architecture=POLICIES[policy].architecture,
            workers=networks[k].num_workers,
            servers=networks[k].num_servers if POLICIES[policy].architecture == "ps" else 0,
            steps=length[engine],
            events=events[name, k, engine],
            step_s=spread([seconds / length[engine] for seconds in repeats_s]),
            events_per_s=spread([events[name, k, engine] / seconds for seconds in repeats_s]),
            repeats_s=repeats_s,
            compile_s=compile_s[engine],
        )
        for (name, k, engine), repeats_s in taken_s.items()
    ]


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Inside, this thread, and those that it starts, run on ``count`` of the cores that it may use.

    Planners and the simulator are one thread; the predictor takes one for each core.

    Raises
    ------
    HocketError
        When there are not so many.
    """
    allowed = os.sched_getaffinity(0)
    if not 1 <= count <= len(allowed):
        raise HocketError(f"{count} cores are not between 1 and the {len(allowed)} that this process may use")
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _check(repeats: int, policies: Sequence[str]) -> None:
    if not 1 <= repeats <= _MOST_REPEATS:
        raise HocketError(f"{repeats} repeats are not between 1 and {_MOST_REPEATS}")
    for policy in policies:
        if policy not in POLICIES:
            raise UnknownNameError("policy", policy, list(POLICIES))
        if policies.count(policy) > 1:
            raise HocketError(f"policy '{policy}' is named twice; name it once")


def _small(network: Network) -> StepGraph:
    """A step with a parameter for each server at least."""
    num_parameters = max(BRANCHES, network.num_servers)
    return inception_like(_COMPILED_WITH * num_parameters, num_parameters)


def _planning(graph: StepGraph, network: Network, policy: str) -> Callable[[], object]:
    return lambda: plan(graph, network, policy)


def _running(engine: Engine, graph: StepGraph, made: Plan, network: Network, steps: int) -> Callable[[], int]:
    """A call of ``engine`` that says how many operations and transfers it ran through."""
    if engine == "simulate":
        return lambda: simulate(graph, made, network, iterations=steps).row.events
    return lambda: sum(
        row.events
        for row in predict(graph, network, workers=[network.num_workers], plan=made, steps=steps, skip=0)
    )


def _compiling_s(call: Callable[[], object]) -> float:
    """Seconds that a first call takes beyond a second one."""
    first_s, second_s = _seconds(call), _seconds(call)
    return max(0.0, first_s - second_s)


def _in_turns(
    calls: Mapping[Key, Callable[[], object]], repeats: int, progress: Progress | None
) -> dict[Key, list[float]]:
    """Seconds that each call takes, ``repeats`` of them."""
    taken_s: dict[Key, list[float]] = {key: [] for key in calls}
    for turn in range(repeats):
        for done, (key, call) in enumerate(calls.items()):
            taken_s[key].append(_seconds(call))
            if progress is not None:
                progress(turn * len(calls) + done + 1, repeats * len(calls))
    return taken_s


def _seconds(call: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s
