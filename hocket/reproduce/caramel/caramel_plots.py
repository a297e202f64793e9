"""Caramel's figures, redrawn."""

from __future__ import annotations

import numpy as np

from hocket.network import PATTERNS
from hocket.reproduce.caramel.caramel_claims import CLAIMS
from hocket.reproduce.caramel.caramel_measurements import (
    DEPTH_SPLIT,
    DEPTHS,
    PATTERN_BYTES,
    PATTERN_WORKERS,
    WORKERS,
    CaramelMeasurements,
    measure,
)
from hocket.reproduce.claim import judged
from hocket.reproduce.contours import utilization_lines
from hocket.reproduce.reproduction import PaperFigure, PlotAxes, Reproduction, Series
from hocket.reproduce.setting import Progress, ReproductionSetting
from hocket.reproduce.steps import NAMES

_COMPARED = ("PS, W", "PS, W/2", "Horovod", "Horovod, fused", "DDP", "Caramel, ring", "Caramel")
_OVERLAPPING = "inception_v3"


def reproduce(setting: ReproductionSetting, progress: Progress | None = None) -> Reproduction:
    """Simulate, judge and draw."""
    found = measure(setting, progress)
    return Reproduction(
        paper="caramel",
        title="Caramel: accelerating decentralized distributed deep learning with computation scheduling",
        assumptions=(
            "Everything is simulated or computed; the paper measured on Azure (K80 workers, 10 Gbit/s).",
            "Workers are K80s derived by roofline at TicTac's batch sizes (512 for AlexNet, else 32), one "
            "sampled step; section 6 names no batch sizes.",
            "Messages cost what the contention paper fitted to two nodes on 10 Gbit/s Ethernet: 335 us a "
            "message, 0.8 ns a byte on the wire, 0.106 ns to reduce it. The 335 us wait, except in Figs. 13 "
            "and 14: there 2 of 7 parts occupy the receiver, fitted to the worst case of Fig. 13.",
            "Horovod is unfused on a ring, operations in any order, as TensorFlow runs them; Caramel takes "
            "the cheapest pattern for each size. Horovod fused (64 MiB, or the largest gradient) and DDP's "
            "buckets are not in the paper.",
            f"{setting.steps} simulated steps a configuration, seed {setting.seed}.",
        ),
        claims=tuple(judged(claim, found) for claim in CLAIMS),
        tables=(),
        figures=(
            _figure_2(found),
            _figure_4(found),
            _figure_8(found),
            _figure_9(found),
            _figure_10(found),
            _figure_11(found),
            _figure_12(found),
            _figure_13(found),
            _figure_14(found),
        ),
    )


def _figure_2(found: CaramelMeasurements) -> PaperFigure:
    rows = found.by_model[_OVERLAPPING].rows
    series = [
        Series(name=name, x=(rows[8, name].rho,), y=(rows[8, name].overlap,), kind="points")
        for name in _COMPARED
    ]
    series += utilization_lines(1.1 * max(rows[8, name].rho for name in _COMPARED))
    panel = PlotAxes(title="", x="communication over computation, rho", y="overlap", series=tuple(series))
    return PaperFigure(number="Fig. 2", caption="Inception v3, 8 workers, by system", panels=(panel,))


def _figure_4(found: CaramelMeasurements) -> PaperFigure:
    names = tuple(NAMES[figures.model] for figures in found.models)
    forward = tuple(100 * figures.forward_share for figures in found.models)
    curves = []
    for figures in found.models:
        sizes = np.sort(figures.parameter_bytes) / 1e3
        share = np.arange(1, len(sizes) + 1) / len(sizes)
        curves.append(Series(name=NAMES[figures.model], x=tuple(sizes.tolist()), y=tuple(share.tolist())))
    sizes_kb = tuple(size / 1e3 for size in found.halving_s)
    times_ms = tuple(1e3 * seconds for seconds in found.halving_s.values())
    return PaperFigure(
        number="Fig. 4",
        caption="The models, and what small reductions cost (halving-doubling, 16 workers)",
        panels=(
            PlotAxes(
                title="a",
                x="",
                y="forward pass, % of the step",
                series=(Series(name="forward", x=names, y=forward, kind="bars"),),
            ),
            PlotAxes(title="b", x="parameter, KB", y="share of parameters", series=tuple(curves), x_log=True),
            PlotAxes(
                title="c",
                x="KB",
                y="ms",
                series=(Series(name="time", x=sizes_kb, y=times_ms),),
                x_log=True,
                y_log=True,
            ),
        ),
    )


def _compared(
    found: CaramelMeasurements, number: str, caption: str, y: str, figure: str, scale: float
) -> PaperFigure:
    panels = []
    for workers in WORKERS:
        series = [
            Series(
                name=name,
                x=tuple(NAMES[figures.model] for figures in found.models),
                y=tuple(scale * getattr(figures.rows[workers, name], figure) for figures in found.models),
                kind="bars",
            )
            for name in _COMPARED
        ]
        panels.append(PlotAxes(title=f"{workers} workers", x="", y=y, series=tuple(series)))
    return PaperFigure(number=number, caption=caption, panels=tuple(panels))


def _figure_8(found: CaramelMeasurements) -> PaperFigure:
    return _compared(found, "Fig. 8", "Iteration time by system", "s", "iteration_s", 1.0)


def _figure_9(found: CaramelMeasurements) -> PaperFigure:
    return _compared(found, "Fig. 9", "Utilization by system", "%", "utilization", 100.0)


def _figure_10(found: CaramelMeasurements) -> PaperFigure:
    network = _compared(found, "", "", "network time, s", "communication_s", 1.0)
    overlap = _compared(found, "", "", "overlap", "overlap", 1.0)
    return PaperFigure(
        number="Fig. 10", caption="Network time and overlap by system", panels=network.panels + overlap.panels
    )


def _stages(found: CaramelMeasurements, models: tuple[str, ...]) -> tuple[Series, ...]:
    return tuple(
        Series(
            name=NAMES[model],
            x=tuple(found.by_model[model].stages),
            y=tuple(100 * row.utilization for row in found.by_model[model].stages.values()),
            kind="bars",
        )
        for model in models
    )


def _figure_11(found: CaramelMeasurements) -> PaperFigure:
    panel = PlotAxes(
        title="Inception v3, 8 workers", x="", y="utilization, %", series=_stages(found, (_OVERLAPPING,))
    )
    return PaperFigure(
        number="Fig. 11", caption="Gain of each stage, on top of those before", panels=(panel,)
    )


def _figure_12(found: CaramelMeasurements) -> PaperFigure:
    models = tuple(figures.model for figures in found.models)
    panel = PlotAxes(title="8 workers", x="", y="utilization, %", series=_stages(found, models))
    return PaperFigure(number="Fig. 12", caption="Gain of each stage, all models", panels=(panel,))


def _figure_13(found: CaramelMeasurements) -> PaperFigure:
    sizes = tuple(row.size_bytes / 1e3 for row in found.depths)
    series = [
        Series(name=f"depth {depth}", x=sizes, y=tuple(1e3 * row.fixed_s[number] for row in found.depths))
        for number, depth in enumerate(DEPTHS)
    ]
    series.append(
        Series(name="adaptive", x=sizes, y=tuple(1e3 * row.adaptive_s for row in found.depths), kind="points")
    )
    panel = PlotAxes(title="shuffle, 8 workers", x="KB", y="ms", series=tuple(series), x_log=True, y_log=True)
    return PaperFigure(number="Fig. 13", caption="One reduction by the number of chunks", panels=(panel,))


def _figure_14(found: CaramelMeasurements) -> PaperFigure:
    panels = []
    for size in PATTERN_BYTES:
        rows = [row for row in found.patterns if (row.split, row.size_bytes) == (DEPTH_SPLIT, size)]
        series = tuple(
            Series(
                name=pattern,
                x=tuple(float(workers) for workers in PATTERN_WORKERS),
                y=tuple(1e3 * row.seconds[pattern] for row in rows),
            )
            for pattern in PATTERNS
        )
        title = f"{size // 2**10} KiB" if size < 2**20 else f"{size // 2**20} MiB"
        panels.append(PlotAxes(title=title, x="workers", y="ms", series=series, x_log=True, y_log=True))
    return PaperFigure(number="Fig. 14", caption="One reduction by pattern", panels=tuple(panels))
