"""A profile of the step under the plan in force, and the network's measurement between its steps."""

from __future__ import annotations

import functools
from collections.abc import Generator
from typing import TypeAlias

from hocket.graph import step_from_rows
from hocket.graph.clipped_step import clipped
from hocket.network import Network
from hocket.network.file import MeasuredPoint
from hocket.runtime.observe.recorder import Moment
from hocket.runtime.observe.step_rows import parameter_rows, unused_row
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.plan_trials import Choice
from hocket.runtime.transfers.gloo_group import GlooGroup, gather_values, max_over_ranks
from hocket.runtime.transfers.norms import USUAL_ORDERS

PROFILED_STEPS = 4
"""Steps under the baseline that are profiled."""

MeasuredNetwork: TypeAlias = tuple[Network, MeasuredPoint]


def profiled(
    training: AllReduceTraining,
    choice: Choice,
    control: GlooGroup,
    pieces: Generator[None, None, MeasuredNetwork] | None = None,
    steps_after: int = 0,
) -> Generator[None, None, list[float]]:
    """Run some steps under the plan in force, keep what they show, and return their slowest rank's times.

    ``pieces``: of measuring the network, which are done between these steps; ``steps_after``: as many trials
    may follow.
    """
    most = PROFILED_STEPS + steps_after
    choice.enter("profiling", f": {PROFILED_STEPS} steps under plan '{choice.plan.policy}'", most)
    training.recorder.forget()
    if training.compiled_step is not None:
        training.compiled_step.record(True)
    measure_on = functools.partial(_measure_on, training, choice, pieces)
    turns: list[list[Moment]] = []
    for _ in range(PROFILED_STEPS):
        measure_on()
        begun = training.recorder.now()
        yield
        if pieces is not None:
            training.finish_transfers()  # the next measurement would, outside of the step that has to wait
        turns.append([begun, training.recorder.now()])
    while pieces is not None and choice.network is None:
        measure_on()
    seconds = [s for turn in turns for s in training.recorder.seconds_between(turn)]
    name = type(training.model).__name__
    choice.graph = training.recorder.graph(name, 1)
    choice.computing_s = training.recorder.computing_s(PROFILED_STEPS)
    if training.compiled_step is not None:
        training.compiled_step.record(False)
        rows = training.compiled_step.step_rows(name, 1)
        parameters = {row.name: training.parameters[row.name] for row in rows.parameters}
        rows.parameters[:] = parameter_rows(parameters, training.gradient_dtype)
        produced = {name for row in rows.operations for name in row.produces}
        unused = [name for name in training.parameters if name not in produced]
        last = rows.operations[-1].name
        rows.operations.append(unused_row(last, unused))
        rows.operations.extend(training.recorder.update_rows())
        choice.graph = step_from_rows(rows)
    choice.clips = agree_on_norms(training, control)
    if choice.graph is not None and choice.clips:
        choice.graph = clipped(choice.graph)
    return max_over_ranks(seconds, control)


def _measure_on(
    training: AllReduceTraining, choice: Choice, pieces: Generator[None, None, MeasuredNetwork] | None
) -> None:
    """Do the next piece of measuring the network, with nothing else on it."""
    if pieces is None or choice.network is not None:
        return
    training.finish_transfers()
    try:
        next(pieces)
    except StopIteration as end:
        choice.network, choice.point = end.value


def agree_on_norms(training: AllReduceTraining, control: GlooGroup) -> bool:
    """Have plans that are enforced from now on tell of norms of the orders that any rank has taken.

    Returns whether steps wait for norms of their gradients, or scale them: in most steps, on some rank.
    """
    answers = training.rounds.early_answers
    asked = gather_values(sorted(answers.asked_orders), control, list[float])
    training.norm_orders = sorted({*USUAL_ORDERS, *(order for orders in asked for order in orders)})
    (steps,) = max_over_ranks([answers.asking_steps], control)
    return 2 * steps > training.steps
