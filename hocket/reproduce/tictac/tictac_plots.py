"""TicTac's table and figures, redrawn."""

from __future__ import annotations

import numpy as np

from hocket.reproduce.claim import judged
from hocket.reproduce.contours import utilization_lines
from hocket.reproduce.reproduction import PaperFigure, PaperTable, PlotAxes, Reproduction, Series
from hocket.reproduce.setting import Progress, ReproductionSetting
from hocket.reproduce.steps import NAMES
from hocket.reproduce.tictac.tictac_claims import CLAIMS, TABLE_1, consistent, of_four
from hocket.reproduce.tictac.tictac_measurements import (
    CONSISTENT,
    FACTORS,
    JITTER,
    OVERLAPPING,
    SAMPLES,
    SERVERS,
    WORKERS,
    PolicyRun,
    TicTacMeasurements,
    measure,
)

_TASKS = {"inference": True, "training": False}
_GAIN = "throughput over random orders, %"
_CPU_MODELS = ("inception_v2", "vgg16", "alexnet_v2")


def reproduce(setting: ReproductionSetting, progress: Progress | None = None) -> Reproduction:
    """Simulate, judge and draw."""
    found = measure(setting, progress)
    return Reproduction(
        paper="tictac",
        title="TicTac: accelerating distributed deep learning with communication scheduling",
        assumptions=(
            "Everything is simulated; the paper measured on Azure (K80 workers, 10 Gbit/s) and on a CPU "
            "cluster.",
            "Workers are K80s derived by roofline at Table 1's batch sizes, also in place of the CPU "
            "cluster's processors (Figs. 13, 15), of which no published figures are known; startups are 0.",
            f"{SAMPLES} sampled steps with {JITTER:.0%} lognormal noise a worker and step; {setting.steps} "
            f"simulated steps a configuration, {setting.noisy_steps} for Fig. 13; seed {setting.seed}.",
            "The baseline draws a fresh order of pulls for every worker and step, as TensorFlow does.",
            "Figs. 12, 14 and 15 are of 4 workers and 1 server; the paper does not say how many it had.",
        ),
        claims=tuple(judged(claim, found) for claim in CLAIMS),
        tables=(_table_1(found),),
        figures=(
            _figure_4(found),
            _figure_9(found),
            _figure_10(found),
            _figure_11(found),
            _figure_12(found),
            _figure_13(found),
            _figure_14(found),
            _figure_15(found),
        ),
    )


def _table_1(found: TicTacMeasurements) -> PaperTable:
    rows = []
    for row in found.zoo:
        paper = TABLE_1[row.model]
        rows.append(
            (
                NAMES[row.model],
                *(paper.parameters, row.parameters, paper.mib, round(row.mib, 2)),
                *(paper.inference_operations, row.inference_operations),
                *(paper.training_operations, row.training_operations, paper.batch_size),
            )
        )
    columns = (
        *("Model", "parameters, paper", "ours", "MiB, paper", "ours", "inference operations, paper", "ours"),
        *("training operations, paper", "ours", "batch size"),
    )
    return PaperTable(number="Table 1", caption="The models", columns=columns, rows=tuple(rows))


def _percent(found: TicTacMeasurements, runs: list[PolicyRun]) -> tuple[float, ...]:
    return tuple(100 * found.gain(run) for run in runs)


def _names(runs: list[PolicyRun]) -> tuple[str, ...]:
    return tuple(NAMES[run.model] for run in runs)


def _figure_4(found: TicTacMeasurements) -> PaperFigure:
    points = []
    for policy, name in (("random", "TensorFlow"), ("tac", "TicTac")):
        runs = found.select(policy, lambda r: r.model == OVERLAPPING and (r.workers, r.factor) == (2, 1.0))
        points.append(
            Series(
                name=name,
                x=tuple(run.rho for run in runs),
                y=tuple(run.overlap for run in runs),
                kind="points",
            )
        )
    panel = PlotAxes(
        title="Inception v3, 2 workers, 1 server: training and inference",
        x="communication over computation, rho",
        y="overlap coefficient",
        series=(*points, *utilization_lines(1.6)),
    )
    return PaperFigure(number="Fig. 4", caption="Improvement in utilization with TicTac", panels=(panel,))


def _figure_9(found: TicTacMeasurements) -> PaperFigure:
    panels = []
    for workers in WORKERS:
        series = []
        for task, inference in _TASKS.items():
            runs = found.select(
                "tic",
                lambda r, w=workers, i=inference: (  # type: ignore[misc]
                    r.inference == i and (r.workers, r.servers, r.factor) == (w, max(1, w // 4), 1.0)
                ),
            )
            series.append(Series(name=task, x=_names(runs), y=_percent(found, runs), kind="bars"))
        panels.append(
            PlotAxes(title=f"{workers} worker{'s' * (workers > 1)}", x="", y=_GAIN, series=tuple(series))
        )
    return PaperFigure(
        number="Fig. 9", caption="Scaling the number of workers, four to a server", panels=tuple(panels)
    )


def _figure_10(found: TicTacMeasurements) -> PaperFigure:
    panels = []
    for task, inference in _TASKS.items():
        series = []
        for servers in SERVERS:
            runs = found.select(
                "tic",
                lambda r, s=servers, i=inference: (  # type: ignore[misc]
                    r.inference == i and (r.workers, r.servers, r.factor) == (8, s, 1.0)
                ),
            )
            series.append(
                Series(
                    name=f"{servers} server{'s' * (servers > 1)}",
                    x=_names(runs),
                    y=_percent(found, runs),
                    kind="bars",
                )
            )
        panels.append(PlotAxes(title=task, x="", y=_GAIN, series=tuple(series)))
    return PaperFigure(
        number="Fig. 10", caption="Scaling the number of servers, 8 workers", panels=tuple(panels)
    )


def _figure_11(found: TicTacMeasurements) -> PaperFigure:
    panels = []
    for task, inference in _TASKS.items():
        series = []
        for factor in FACTORS:
            runs = found.select(
                "tic",
                lambda r, f=factor, i=inference: (  # type: ignore[misc]
                    r.inference == i and (r.workers, r.servers, r.factor) == (4, 1, f)
                ),
            )
            series.append(
                Series(name=f"batch x {factor:g}", x=_names(runs), y=_percent(found, runs), kind="bars")
            )
        panels.append(PlotAxes(title=task, x="", y=_GAIN, series=tuple(series)))
    return PaperFigure(
        number="Fig. 11", caption="Scaling the computational load, 4 workers", panels=tuple(panels)
    )


def _figure_12(found: TicTacMeasurements) -> PaperFigure:
    series = []
    for task, inference in _TASKS.items():
        runs = sorted(of_four(found, "tic", inference), key=lambda run: run.operations)
        x = tuple(float(run.operations) for run in runs)
        series.append(Series(name=task, x=x, y=_percent(found, runs), kind="points"))
    panel = PlotAxes(title="", x="operations of the step", y=_GAIN, series=tuple(series))
    return PaperFigure(number="Fig. 12", caption="Gain by the size of the graph", panels=(panel,))


def _figure_13(found: TicTacMeasurements) -> PaperFigure:
    labels = {"random": "no ordering", "tac": "TAC"}
    points, curves = [], []
    for policy, name in labels.items():
        training, inference = (consistent(found, policy, task) for task in (False, True))
        steps = np.array(training.steps_s)
        fastest_s = min(min(consistent(found, each, False).steps_s) for each in labels)
        points.append(
            Series(
                name=name, x=training.overlaps, y=tuple((fastest_s / steps).round(5).tolist()), kind="points"
            )
        )
        ordered = np.sort(min(inference.steps_s) / np.array(inference.steps_s))
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        curves.append(Series(name=name, x=tuple(ordered.round(5).tolist()), y=tuple(share.tolist())))
    model = NAMES[CONSISTENT]
    return PaperFigure(
        number="Fig. 13",
        caption=f"{model}: (a) overlap and step time in training, (b) consistency in inference",
        panels=(
            PlotAxes(title="a", x="overlap coefficient", y="fastest step over step", series=tuple(points)),
            PlotAxes(title="b", x="normalized step time", y="share of steps", series=tuple(curves)),
        ),
    )


def _figure_14(found: TicTacMeasurements) -> PaperFigure:
    series = []
    for policy, name in (("random", "baseline"), ("tic", "TIC")):
        runs = of_four(found, policy, True) + of_four(found, policy, False)
        series.append(
            Series(
                name=name,
                x=tuple(float(run.operations) for run in runs),
                y=tuple(100 * run.straggler for run in runs),
                kind="points",
            )
        )
    panel = PlotAxes(title="", x="operations of the step", y="straggler time, %", series=tuple(series))
    return PaperFigure(number="Fig. 14", caption="Stragglers with TIC", panels=(panel,))


def _figure_15(found: TicTacMeasurements) -> PaperFigure:
    panels = []
    for task, inference in _TASKS.items():
        series = []
        for policy in ("tic", "tac"):
            runs = [run for run in of_four(found, policy, inference) if run.model in _CPU_MODELS]
            series.append(Series(name=policy.upper(), x=_names(runs), y=_percent(found, runs), kind="bars"))
        panels.append(PlotAxes(title=task, x="", y=_GAIN, series=tuple(series)))
    return PaperFigure(number="Fig. 15", caption="TIC beside TAC, 4 workers", panels=tuple(panels))
