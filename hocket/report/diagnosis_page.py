"""The page of a diagnosis: the answers, a step's time by rank, more ranks, plans and what takes longest."""

from __future__ import annotations

from typing import Any

from hocket.diagnosis import Diagnosis
from hocket.planner.named_planners import USUAL
from hocket.report.alternatives import sentences_text
from hocket.report.diagnosis_table import (
    collective_columns,
    operation_columns,
    rank_columns,
    scaling_columns,
    time_columns,
    time_parts,
)
from hocket.report.diagnosis_words import advice, answers, speed_up, titles
from hocket.report.html_page import Tile, render_page
from hocket.report.step_table import best_first, step_columns
from hocket.text import duration_text, percent_text, time_unit


def render_diagnosis(diagnosis: Diagnosis) -> str:
    """The page of ``diagnosis``."""
    title, setup = titles(diagnosis)
    tuning = diagnosis.tuning
    rows = [] if tuning is None else best_first(tuning.ranked)
    return render_page(
        "diagnosis.html",
        {"diagnosis": diagnosis_figures(diagnosis), "unit": _unit(diagnosis)},
        title=title,
        setup=setup,
        tiles=_tiles(diagnosis),
        answers=answers(diagnosis),
        advice=advice(diagnosis),
        notes=diagnosis.notes,
        times=time_columns(diagnosis),
        ranks=rank_columns(diagnosis) if len(diagnosis.per_rank) > 1 else [],
        collectives=collective_columns(diagnosis.collectives) if diagnosis.collectives else [],
        operations=operation_columns(diagnosis),
        plans=step_columns(rows, wide=False) if rows else [],
        best_plans=[tuning is not None and row.policy == tuning.best.policy for row in rows],
        scaling=scaling_columns(diagnosis.scaling) if diagnosis.scaling else [],
        texts={"times": _times_text(diagnosis), "scaling": _scaling_text(diagnosis)},
    )


def diagnosis_figures(diagnosis: Diagnosis) -> dict[str, Any]:
    """The parts of a step of each rank, and computing's share over numbers of ranks."""
    scale = time_unit([diagnosis.times.elapsed_s]).per_second
    every = [time_parts(rank.times) for rank in diagnosis.per_rank]
    names = dict.fromkeys(name for own in every for name in own)
    return {
        "ranks": [rank.name for rank in diagnosis.per_rank],
        "parts": [
            {"name": name, "kind": _kind(name), "times": [own.get(name, 0.0) * scale for own in every]}
            for name in names
        ],
        "scaling": {
            "ranks": [row.workers for row in diagnosis.scaling],
            "computing": [100 * (row.efficiency or 0.0) for row in diagnosis.scaling],
            "step": [row.step_s * scale for row in diagnosis.scaling],
        },
    }


def _unit(diagnosis: Diagnosis) -> dict[str, Any]:
    unit = time_unit([diagnosis.times.elapsed_s])
    return {"symbol": unit.symbol, "per_second": unit.per_second}


def _kind(name: str) -> str:
    """The colour of a part."""
    if name.startswith("exposed"):
        return "reduce" if "gradients" in name else "push"
    return "wait" if name.startswith("idle") else name


def _tiles(diagnosis: Diagnosis) -> list[Tile]:
    times, whole_s = diagnosis.times, diagnosis.times.elapsed_s

    def part(name: str, seconds: float, note: str) -> Tile:
        return Tile(name, percent_text(seconds / whole_s), f"{duration_text(seconds)} {note}")

    tiles = [
        Tile("Step", duration_text(whole_s), "from the end of one to the end of the next"),
        part("Computing", times.computed_s, "in which operations run"),
        part("Exposed communication", times.communication_s, "in which collectives alone run"),
        part(
            "Idle",
            times.host_s + times.waiting_s,
            f"in which nothing runs, {duration_text(times.host_s)} of it for the host",
        ),
    ]
    gain, tuning = speed_up(diagnosis), diagnosis.tuning
    if gain is not None and tuning is not None:
        best = tuning.best
        bound = f"{duration_text(best.iteration_s)} a step; bound {duration_text(best.bound_s)}"
        usual = USUAL[best.architecture]
        tiles.append(Tile(f"Best plan: {best.policy}", f"{gain:.2f}x", f"as fast as {usual}: {bound}"))
    if diagnosis.scaling:
        half, most = diagnosis.half_at, diagnosis.scaling[-1].workers
        figure = f"beyond {most}" if half is None else str(half.workers)
        tiles.append(Tile("Half is communication", figure, "ranks, or waiting for slower ranks"))
    return tiles


def _times_text(diagnosis: Diagnosis) -> str:
    return sentences_text(
        [
            f"{rank.name}: "
            + ", ".join(
                f"{name} {duration_text(seconds)}" for name, seconds in time_parts(rank.times).items()
            )
            for rank in diagnosis.per_rank
        ]
    )


def _scaling_text(diagnosis: Diagnosis) -> str:
    return sentences_text(
        [
            f"{row.workers} ranks: computing is {percent_text(row.efficiency or 0.0)} of a step of "
            f"{duration_text(row.step_s)}"
            for row in diagnosis.scaling
        ]
    )
