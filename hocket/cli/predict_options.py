"""Options of ``hocket predict`` for plans, simulated steps and output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hocket.cli import options
from hocket.cli.name_options import complete_policy, lowercase
from hocket.cli.panels import OUTPUT, PLANNING, SIMULATION, option
from hocket.cli.planning_options import ExchangeOptions, PlanFile, PlannerOptions

if TYPE_CHECKING:
    from hocket.graph import StepGraph

_SKIPPED = 50
_DRAWN, _MOST_DRAWN = 100, 1000  # samples of a step that varies


@dataclass(frozen=True, kw_only=True)
class _Mode:
    mode: Annotated[
        Literal["async", "sync"] | None,
        option(
            "--mode",
            panel=PLANNING,
            help="sync: workers wait for each other; async, with servers: they do not.",
            show_default="sync with all-reduce, async with servers",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class _PredictedPolicy(ExchangeOptions, _Mode):
    policy: Annotated[
        str | None,
        option(
            "--policy",
            panel=PLANNING,
            metavar="NAME",
            callback=lowercase,
            autocompletion=complete_policy,
            help="Plan by this policy; a wrong name lists all.",
            show_default="ddp, with servers fifo",
        ),
    ] = None
    plan: PlanFile = None
    updates: Annotated[
        Literal["arrival", "commit"],
        option(
            "--updates",
            panel=PLANNING,
            rare=True,
            help="Servers begin them as gradients arrive, or when a worker commits its step.",
        ),
    ] = "arrival"


@dataclass(frozen=True, kw_only=True)
class PredictPlanning(PlannerOptions, _PredictedPolicy):
    """Options for what each configuration runs by."""


@dataclass(frozen=True, kw_only=True)
class PredictSimulation:
    """Options for the steps that a prediction rests on."""

    anyway: Annotated[
        bool,
        option(
            "--anyway",
            panel=SIMULATION,
            rare=True,
            help="Predict though the recorded job itself is predicted wrong by more than 10%.",
        ),
    ] = False

    steps: Annotated[
        int, option("--steps", panel=SIMULATION, metavar="N", help="Steps of each worker to simulate.")
    ] = 1000
    skip: Annotated[
        int | None,
        option(
            "--skip",
            panel=SIMULATION,
            rare=True,
            metavar="N",
            help="Of them, left out at the beginning.",
            show_default="50, half of few",
        ),
    ] = None
    max_steps: Annotated[
        int | None,
        option(
            "--max-steps",
            panel=SIMULATION,
            rare=True,
            metavar="N",
            help="Go on to, until both halves agree to 5%.",
            show_default="16 times the steps",
        ),
    ] = None
    jitter: Annotated[
        float,
        option(
            "--jitter",
            panel=SIMULATION,
            rare=True,
            metavar="X",
            min=0.0,
            max=1.0,
            help="Of a step of one sample: vary it lognormally by this much, on each worker by itself.",
        ),
    ] = 0.0
    repeats: Annotated[
        int,
        option(
            "--repeats",
            panel=SIMULATION,
            metavar="N",
            help="Seeds to run; two or more give 95% intervals.",
        ),
    ] = 1
    seed: options.Seed = 0
    engine: Annotated[
        Literal["local", "ray"],
        option("--engine", panel=SIMULATION, rare=True, help="All cores of this machine, or a Ray cluster."),
    ] = "local"

    def varied(self, graph: StepGraph, most_workers: int) -> StepGraph:
        """``graph`` with the jitter that is asked for: at least as many samples as workers that draw some."""
        from hocket.graph.jittered_step import jittered

        if not self.jitter:
            return graph
        return jittered(graph, self.jitter, min(_MOST_DRAWN, max(_DRAWN, most_workers)), self.seed)

    def skipped(self) -> int:
        """The steps at the beginning that are left out."""
        return min(_SKIPPED, self.steps // 2) if self.skip is None else self.skip


@dataclass(frozen=True, kw_only=True)
class _PredictFiles:
    measured: Annotated[
        Path | None,
        option("--measured", panel=OUTPUT, metavar="FILE", help="CSV to compare with: workers,throughput."),
    ] = None
    plot: Annotated[
        Path | None, option("--plot", panel=OUTPUT, metavar="FILE", help="Write a page with the curves.")
    ] = None
    timeline: Annotated[
        Path | None,
        option(
            "--timeline",
            panel=OUTPUT,
            metavar="FILE",
            help="Write a trace of the most machines for Perfetto.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PredictOutput(options.PrintOptions, _PredictFiles):
    """Options for what is printed and written."""

    def check_files(self, inputs: list[Path]) -> None:
        """Refuse outputs that may not be written, or are one file."""
        for output in (self.plot, self.timeline):
            if output is not None:
                options.check_beside_result(output, *inputs)
        if self.plot is not None and self.timeline is not None:
            options.check_apart(self.plot, self.timeline, "the page and the timeline")
