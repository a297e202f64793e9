"""The contention paper's tables and figures, redrawn."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hocket.cluster.results.paired import SweepRow
from hocket.reproduce.claim import judged
from hocket.reproduce.contention.contention_claims import (
    CLAIMS,
    TABLE_IV,
    TABLE_V,
    PublishedPlacement,
    average,
)
from hocket.reproduce.contention.contention_measurements import (
    BEST,
    KAPPAS,
    NUM_JOBS,
    OURS,
    PLACEMENTS,
    POLICIES,
    ContentionMeasurements,
    measure,
    pooled,
)
from hocket.reproduce.loopback import WORKERS, fit_panel
from hocket.reproduce.reproduction import Missing, PaperFigure, PaperTable, PlotAxes, Reproduction, Series
from hocket.reproduce.setting import Progress, ReproductionSetting

_MOST_POINTS = 400


def reproduce(setting: ReproductionSetting, progress: Progress | None = None) -> Reproduction:
    """Measure, simulate, judge and draw."""
    found = measure(setting, progress)
    return Reproduction(
        paper="contention",
        title="Communication contention aware scheduling of multiple deep learning training jobs",
        assumptions=(
            "As in the paper, the cluster is simulated: 16 servers of 4 GPUs with 16 GB, Eq. 5 with its a "
            "and b, and eta 0.235/0.856 of b as in its authors' code.",
            f"{setting.job_sets} job sets of {NUM_JOBS} jobs drawn as its section V-A says, seeds "
            f"{setting.seed} to {setting.seed + setting.job_sets - 1}; its own was not published. Figures "
            "are means over job sets, distributions are of all of them together.",
            f"Fig. 2 is measured between {WORKERS} processes of this machine, in place of two nodes on 10 "
            "Gbit/s Ethernet.",
            "Table III's times are derived for a V100 by roofline, whose efficiency was fitted to them.",
        ),
        claims=tuple(judged(claim, found) for claim in CLAIMS),
        tables=(
            _table_3(found),
            _table_4(found),
            _table_5(found),
        ),
        figures=(_figure_2(found), _figure_4(found), _figure_5(found), _figure_6(found)),
        missing=(
            Missing(
                number="Table III, GPU memory",
                why="needs the GPU and the framework that it was measured with",
                instead="the paper's own figures are what the simulated jobs ask for",
            ),
        ),
    )


def _table_3(found: ContentionMeasurements) -> PaperTable:
    rows = tuple(
        (
            *(step.paper.name, step.batch_size, step.paper.size_bytes / 1e6, round(step.size_bytes / 1e6, 1)),
            *(1e3 * step.paper.forward_s, round(1e3 * step.forward_s, 1)),
            *(1e3 * step.paper.backward_s, round(1e3 * step.backward_s, 1)),
            round(
                (step.forward_s + step.backward_s) / (step.paper.forward_s + step.paper.backward_s),
                3,
            ),
        )
        for step in found.steps
    )
    columns = (
        *("Model", "batch", "MB, paper", "ours", "forward ms, paper", "ours", "backward ms, paper", "ours"),
        "both, ours over paper",
    )
    return PaperTable(number="Table III", caption="Models on a V100", columns=columns, rows=rows)


_COLUMNS = (
    *("Method", "utilization %, paper", "ours", "average JCT s, paper", "ours", "median s, paper", "ours"),
    *("95th percentile s, paper", "ours", "average against the first row, %", "95% interval"),
)


def _beside(
    name: str, paper: PublishedPlacement, row: SweepRow, found: ContentionMeasurements, first: tuple[str, str]
) -> tuple[str | float, ...]:
    ours = (row.placement, row.policy)
    relative = found.against(ours, first).relative if ours != first else None
    interval = ""
    if relative is not None and relative.low is not None and relative.high is not None:
        interval = f"{100 * relative.low:+.1f} to {100 * relative.high:+.1f}"
    return (
        *(name, 100 * paper.utilization, round(100 * row.gpu_utilization.mean, 2)),
        *(paper.average_jct_s, round(row.average_jct_s.mean)),
        *(paper.median_jct_s, round(row.median_jct_s.mean)),
        *(paper.p95_jct_s, round(row.p95_jct_s.mean)),
        *("" if relative is None else round(100 * relative.mean, 1), interval),
    )


def _table_4(found: ContentionMeasurements) -> PaperTable:
    first = (BEST, OURS)
    order = (BEST, *(place for place in PLACEMENTS if place != BEST))
    return PaperTable(
        number="Table IV",
        caption="Placements under Ada-SRSF",
        columns=_COLUMNS,
        rows=tuple(
            _beside(place.upper(), TABLE_IV[place], found.rows[place, OURS], found, first) for place in order
        ),
    )


def _table_5(found: ContentionMeasurements) -> PaperTable:
    first = (BEST, POLICIES[0])
    return PaperTable(
        number="Table V",
        caption="Policies under LWF-1",
        columns=_COLUMNS,
        rows=tuple(
            _beside(policy, TABLE_V[policy], found.rows[BEST, policy], found, first) for policy in POLICIES
        ),
    )


def _figure_2(found: ContentionMeasurements) -> PaperFigure:
    fits = found.network.fits
    assert fits is not None
    reduced, shared = fits.allreduce, fits.contention
    counts = tuple(float(point.concurrent) for point in shared.points)
    return PaperFigure(
        number="Fig. 2",
        caption="Reductions between two processes here: alone, and several at once",
        panels=(
            fit_panel(reduced, title="a", line="a + b M"),
            PlotAxes(
                title="b",
                x="reductions at once",
                y="ms",
                series=(
                    Series(
                        name="measured",
                        x=counts,
                        y=tuple(1e3 * point.seconds for point in shared.points),
                        kind="points",
                    ),
                    Series(
                        name="Eq. 5, fitted",
                        x=counts,
                        y=tuple(
                            1e3 * shared.seconds(point.size_bytes, point.concurrent)
                            for point in shared.points
                        ),
                    ),
                    Series(
                        name="without contention",
                        x=counts,
                        y=tuple(
                            1e3 * (shared.a_s + point.concurrent * shared.b_s_per_byte * point.size_bytes)
                            for point in shared.points
                        ),
                    ),
                ),
            ),
        ),
    )


def _distributions(
    found: ContentionMeasurements, number: str, caption: str, settings: Iterable[tuple[str, str]], by: int
) -> PaperFigure:
    """Completion times, utilization of GPUs and averages of ``settings``, named by their part ``by``."""
    settings = list(settings)
    curves: dict[str, list[Series]] = {"jct_s": [], "gpu_utilization": []}
    for setting in settings:
        for what, series in curves.items():
            values = np.array(pooled(found.of(*setting), what))
            kept = np.unique(np.linspace(0, len(values) - 1, _MOST_POINTS).round().astype(int))
            series.append(
                Series(
                    name=setting[by],
                    x=tuple(values[kept].round(4).tolist()),
                    y=tuple(((kept + 1) / len(values)).round(5).tolist()),
                )
            )
    averages = Series(
        name="average",
        x=tuple(setting[by] for setting in settings),
        y=tuple(average(found, *setting) for setting in settings),
        kind="bars",
    )
    return PaperFigure(
        number=number,
        caption=caption,
        panels=(
            PlotAxes(
                title="a",
                x="completion time, s",
                y="share of jobs",
                series=tuple(curves["jct_s"]),
                x_log=True,
            ),
            PlotAxes(
                title="b",
                x="utilization of a GPU",
                y="share of GPUs",
                series=tuple(curves["gpu_utilization"]),
            ),
            PlotAxes(title="c", x="", y="average completion time, s", series=(averages,)),
        ),
    )


def _figure_4(found: ContentionMeasurements) -> PaperFigure:
    settings = [(placement, OURS) for placement in PLACEMENTS]
    return _distributions(found, "Fig. 4", "Placements under Ada-SRSF", settings, 0)


def _figure_5(found: ContentionMeasurements) -> PaperFigure:
    settings = [(placement, OURS) for placement in KAPPAS]
    return _distributions(found, "Fig. 5", "kappa of LWF, under Ada-SRSF", settings, 0)


def _figure_6(found: ContentionMeasurements) -> PaperFigure:
    return _distributions(found, "Fig. 6", "Policies under LWF-1", [(BEST, policy) for policy in POLICIES], 1)
