"""The page of a training run: its steps, how much of its transfers is hidden, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from hocket.columns import Column, number_column, percent_column, text_column, time_column
from hocket.errors import HocketError
from hocket.report.alternatives import busy_columns, sentences_text, timeline_text
from hocket.report.html_page import Tile, network_line, render_page
from hocket.report.result_files import TrainingEntry
from hocket.report.step_plot_data import TimelinePanel, timeline_figure
from hocket.report.training_run import NamedTime, TrainingRun, WorkerSteps, training_of
from hocket.text import TimeUnit, counted, time_text, time_unit

_MOST_NAMES = 200


def render_training(entry: TrainingEntry, *, title: str = "A training run") -> str:
    """The page of a recorded training run.

    Raises
    ------
    HocketError
        When the timeline holds no whole step.
    """
    found = training_of(entry.timeline)
    if not found.workers:
        raise HocketError(f"timeline '{entry.timeline.title}' holds no whole step; record at least two steps")
    unit = time_unit(second for worker in found.workers for second in worker.step_s)
    panel = TimelinePanel("As recorded", entry.timeline.title, entry.timeline)
    data = {
        "unit": unit._asdict(),
        "steps": [_steps(worker, unit) for worker in found.workers],
        "timelines": timeline_figure([panel], unit),
    }
    return render_page(
        "training.html",
        data,
        origins=[entry.origin],
        title=title,
        setup=_setup(entry, found),
        tiles=_tiles(found, unit),
        worker_columns=_worker_columns(found.workers, unit),
        wait_columns=_named_columns(found.waits, unit, found),
        transfer_columns=_named_columns(found.transfers, unit, found),
        num_waits=len(found.waits),
        num_transfers=len(found.transfers),
        steps_text=_steps_text(found.workers, unit),
        timeline_text=timeline_text([panel], unit),
        busy=busy_columns([panel]),
    )


def _setup(entry: TrainingEntry, found: TrainingRun) -> str:
    steps = max(len(worker.step_s) for worker in found.workers)
    parts = [entry.timeline.title, counted(len(found.workers), "worker"), counted(steps, "whole step")]
    return " · ".join([*parts, network_line([entry.origin])])


def _middle(worker: WorkerSteps) -> tuple[float, float, float]:
    return median(worker.step_s), median(worker.computing_s), median(worker.overlap_s)


def _tiles(found: TrainingRun, unit: TimeUnit) -> list[Tile]:
    """Means over workers of the medians over steps."""
    middles = [_middle(worker) for worker in found.workers]
    step_s, computing_s, overlap_s = (sum(column) / len(middles) for column in zip(*middles, strict=True))
    every = [second for worker in found.workers for second in worker.step_s]
    share = computing_s / step_s if step_s > 0 else 0.0
    tiles = [
        Tile(
            "Step time",
            time_text(step_s, unit),
            f"{time_text(min(every), unit)} to {time_text(max(every), unit)}",
        ),
        Tile("Computing", f"{share:.1%}", f"{time_text(computing_s, unit)} of a step"),
        Tile("Waiting", time_text(max(0.0, step_s - computing_s), unit), "of a step, the processor idle"),
        Tile("Overlap", time_text(overlap_s, unit), "of a step, computing while something travels"),
    ]
    if found.waits:
        longest = found.waits[0]
        tiles.append(
            Tile("Longest wait", time_text(longest.mean_s, unit), f"of a step, for {_parameter(longest)}")
        )
    return tiles


def _parameter(wait: NamedTime) -> str:
    return wait.name.removeprefix("wait ")


def _steps(worker: WorkerSteps, unit: TimeUnit) -> dict[str, Any]:
    """A worker's steps as the figure stacks them."""
    alone = [c - o for c, o in zip(worker.computing_s, worker.overlap_s, strict=True)]
    idle = [max(0.0, s - c) for s, c in zip(worker.step_s, worker.computing_s, strict=True)]
    parts = {"overlap": worker.overlap_s, "alone": alone, "waiting": idle}
    return {"worker": worker.worker} | {
        name: [round(second * unit.per_second, 6) for second in seconds] for name, seconds in parts.items()
    }


def _steps_text(workers: Sequence[WorkerSteps], unit: TimeUnit) -> str:
    sentences = []
    for worker in workers:
        step_s, computing_s, overlap_s = (time_text(second, unit) for second in _middle(worker))
        sentences.append(
            f"{worker.worker}: a step takes {step_s}, computing {computing_s},"
            f" {overlap_s} of it beside transfers"
        )
    return sentences_text(sentences)


def _worker_columns(workers: Sequence[WorkerSteps], unit: TimeUnit) -> list[Column]:
    middles = list(zip(*map(_middle, workers), strict=True))

    waiting = [max(0.0, step - computing) for step, computing in zip(middles[0], middles[1], strict=True)]
    return [
        text_column("Worker", [worker.worker for worker in workers], "The process."),
        time_column("Step", middles[0], unit, "Median over its whole steps."),
        time_column("Computing", middles[1], unit, "A processor runs an operation."),
        time_column("Waiting", waiting, unit, "It runs none."),
        time_column("Overlap", middles[2], unit, "It computes while something travels."),
        number_column(
            "Steps", [len(worker.step_s) for worker in workers], "Whole steps recorded.", decimals=0
        ),
    ]


def _named_columns(named: Sequence[NamedTime], unit: TimeUnit, found: TrainingRun) -> list[Column]:
    """Names with their times, as many as are read."""
    shown = named[:_MOST_NAMES]
    step_s = sum(median(worker.step_s) for worker in found.workers) / len(found.workers)
    return [
        text_column("Parameter", list(map(_parameter, shown)), "Or the batch that it travels in."),
        time_column("Mean", [each.mean_s for each in shown], unit, "Of a step, over steps and workers."),
        percent_column(
            "Of a step",
            [each.mean_s / step_s if step_s > 0 else None for each in shown],
            "The mean over the median step.",
        ),
        time_column("Longest", [each.longest_s for each in shown], unit, "Of any worker's step."),
    ]
