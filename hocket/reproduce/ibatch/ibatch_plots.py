"""iBatch's figures, redrawn."""

from __future__ import annotations

from itertools import pairwise

from hocket.reproduce.claim import judged
from hocket.reproduce.ibatch.ibatch_claims import CLAIMS, DEFAULTS, FIGURE_5
from hocket.reproduce.ibatch.ibatch_measurements import (
    APPROACHES,
    BATCH_SIZE,
    MODELS,
    NODES,
    SPARSE,
    Chain,
    IBatchMeasurements,
    measure,
)
from hocket.reproduce.ibatch.testbed import Pushes
from hocket.reproduce.reproduction import PaperFigure, PlotAxes, Reproduction, Series
from hocket.reproduce.setting import Progress, ReproductionSetting
from hocket.reproduce.steps import NAMES


def reproduce(setting: ReproductionSetting, progress: Progress | None = None) -> Reproduction:
    """Measure, simulate, judge and draw."""
    found = measure(setting, progress, DEFAULTS)
    return Reproduction(
        paper="ibatch",
        title="iBatch: scalable distributed DL training: batching communication and computation",
        assumptions=(
            f"Steps are measured on one core of this machine with {BATCH_SIZE} images, the least of "
            f"{setting.profiled_steps} for each operation; the paper says neither how fast its nodes are nor "
            "how large its batches. They change with the machine, and all speedups with them.",
            "Scaling is simulated: nodes are virtual machines on 8 blades with 10 Gbit/s each, so that W of "
            "them get 8/W of that, at most 10 Gbit/s; startup 335 us; servers hold equal slices of every "
            "parameter.",
            "iBatch is the paper's greedy choice; 'exact' is the optimum of its own problem.",
            f"Pushes travel in one batch after the backward pass, as in Fig. 5. Seed {setting.seed}.",
            "The paper's crosses are those that its text gives.",
        ),
        claims=tuple(judged(claim, found) for claim in CLAIMS),
        tables=(),
        figures=(
            _figure_3(found.chain),
            _figure_4(found.chain),
            _figure_5(found),
            _figure_6(found),
            _figure_7(found),
        ),
    )


def _figure_3(chain: Chain) -> PaperFigure:
    numbers = tuple(float(number) for number in range(1, len(chain.layers.parameters) + 1))
    series = (
        Series(
            name="communication",
            x=numbers,
            y=tuple((1e3 * (chain.layers.transfer_s + chain.startup_s)).tolist()),
            kind="bars",
        ),
        Series(name="computation", x=numbers, y=tuple((1e3 * chain.layers.compute_s).tolist()), kind="bars"),
    )
    panel = PlotAxes(title="GoogLeNet, 6 nodes", x="layer", y="ms", series=series)
    return PaperFigure(number="Fig. 3", caption="Pulling and computing each layer", panels=(panel,))


def _figure_4(chain: Chain) -> PaperFigure:
    transfers, computes = _spans(chain)
    lanes = [f"{name}: {what}" for name in APPROACHES.values() for what in ("pulls", "computes")]
    series = []
    for what, spans in (("pulls", transfers), ("computes", computes)):
        names, begins, lengths = [], [], []
        for approach, name in APPROACHES.items():
            for begin_s, end_s in spans[approach]:
                names.append(float(lanes.index(f"{name}: {what}")))
                begins.append(1e3 * begin_s)
                lengths.append(1e3 * (end_s - begin_s))
        series.append(Series(name=what, x=tuple(lengths), y=tuple(names), kind="bars", base=tuple(begins)))
    panel = PlotAxes(title="", x="ms", y="", series=tuple(series), lanes=tuple(lanes))
    return PaperFigure(
        number="Fig. 4", caption="The forward pass by approach, GoogLeNet, 6 nodes", panels=(panel,)
    )


def _spans(chain: Chain) -> tuple[dict[str, list[tuple[float, float]]], dict[str, list[tuple[float, float]]]]:
    """Begins and ends, in seconds, of each approach's pulls and of its batches' computing."""
    transfers: dict[str, list[tuple[float, float]]] = {}
    computes: dict[str, list[tuple[float, float]]] = {}
    for approach, ends in chain.batches.items():
        arrived_s = computed_s = 0.0
        transfers[approach], computes[approach] = [], []
        for first, last in pairwise([0, *ends]):
            pulled_s = arrived_s + chain.startup_s + float(chain.layers.transfer_s[first:last].sum())
            transfers[approach].append((arrived_s, pulled_s))
            arrived_s = pulled_s
            begin_s = max(computed_s, arrived_s)
            computed_s = begin_s + float(chain.layers.compute_s[first:last].sum())
            computes[approach].append((begin_s, computed_s))
    return transfers, computes


def _scaling(found: IBatchMeasurements, models: tuple[str, ...], pushes: Pushes) -> tuple[PlotAxes, ...]:
    counts = [nodes for nodes in NODES if nodes > 1 or pushes != "free"]
    panels = []
    for model in models:
        series = [Series(name="linear", x=(0.0, 72.0), y=(0.0, 72.0))]
        for policy, name in APPROACHES.items():
            y = tuple(found.of(model, nodes, pushes).speedups[policy] for nodes in counts)
            series.append(Series(name=name, x=tuple(float(nodes) for nodes in counts), y=y))
        if pushes == "together":
            published = {nodes: figures for (own, nodes), figures in FIGURE_5.items() if own == model}
            for k, name in enumerate(("default", "layer by layer", "iBatch")):
                series.append(
                    Series(
                        name=f"paper: {name}",
                        x=tuple(float(nodes) for nodes in published),
                        y=tuple(figures[k] for figures in published.values()),
                        kind="points",
                    )
                )
        panels.append(PlotAxes(title=NAMES[model], x="nodes", y="speedup", series=tuple(series)))
    return tuple(panels)


def _figure_5(found: IBatchMeasurements) -> PaperFigure:
    return PaperFigure(
        number="Fig. 5",
        caption="Speedup over one node, gradients in one batch",
        panels=_scaling(found, MODELS, "together"),
    )


def _figure_6(found: IBatchMeasurements) -> PaperFigure:
    return PaperFigure(
        number="Fig. 6",
        caption="Speedup where gradients cost nothing",
        panels=_scaling(found, SPARSE, "free"),
    )


def _figure_7(found: IBatchMeasurements) -> PaperFigure:
    panels = []
    for model in SPARSE:
        rows = found.of(model, 72).rows
        whole_s = rows["default"].iteration_s
        parts: dict[str, list[float]] = {"overlapped": [], "communication alone": [], "computation alone": []}
        for policy in APPROACHES:
            row = rows[policy]
            both_s = max(0.0, row.communication_s + row.compute_s - row.iteration_s)
            for name, part_s in zip(
                parts, (both_s, row.communication_s - both_s, row.compute_s - both_s), strict=True
            ):
                parts[name].append(part_s / whole_s)
        series = tuple(
            Series(name=name, x=tuple(APPROACHES.values()), y=tuple(values), kind="bars")
            for name, values in parts.items()
        )
        panels.append(
            PlotAxes(title=NAMES[model], x="", y="of the default's step", series=series, stacked=True)
        )
    return PaperFigure(number="Fig. 7", caption="Where the time goes, 72 nodes", panels=tuple(panels))
