"""The prediction paper's figures, redrawn."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.bench.replay.accuracy_statistics import AccuracyRow
from hocket.reproduce.claim import judged
from hocket.reproduce.loopback import WORKERS as LOOPBACK_WORKERS
from hocket.reproduce.loopback import fit_panel
from hocket.reproduce.prediction.prediction_claims import CLAIMS, MEASURING_S, PARTITION_MIB, PREDICTING_S
from hocket.reproduce.prediction.prediction_measurements import (
    BATCH_SIZES,
    DEVICE,
    JITTER,
    MODEL_BATCH_SIZES,
    MODELS,
    PAIRED,
    PAIRED_BATCH_SIZE,
    PARSE_S_PER_BYTE,
    SAMPLES,
    SCALED,
    TIMED_BATCH_SIZE,
    TIMED_STEPS,
    Curve,
    PredictionMeasurements,
    measure,
)
from hocket.reproduce.prediction.replayed_cluster import NUM_STEPS, RATE_BPS, ROUNDS, SKIP, TRANSFER_S
from hocket.reproduce.prediction.stream_sharing import PARTITIONED, STREAMS, WINDOW
from hocket.reproduce.reproduction import Missing, PaperFigure, PlotAxes, Reproduction, Series
from hocket.reproduce.setting import Progress, ReproductionSetting
from hocket.reproduce.steps import NAMES

_RATE = "examples/s"


def reproduce(setting: ReproductionSetting, progress: Progress | None = None) -> Reproduction:
    """Time, replay, predict, judge and draw."""
    found = measure(setting, progress)
    return Reproduction(
        paper="prediction",
        title="Throughput prediction of asynchronous SGD in TensorFlow",
        assumptions=(
            f"In place of AWS's p3.2xlarge: {DEVICE.upper()} steps derived by roofline, {SAMPLES} samples "
            f"with {JITTER:.0%} lognormal noise; 10 Gbit/s, window 28 MB; parsing "
            f"{PARSE_S_PER_BYTE * 1e9:.2g} ns a byte, the example in section 4.3.",
            f"{setting.predicted_steps} predicted steps a worker, the first {setting.skipped_steps} left "
            f"out; seed {setting.seed}.",
            f"In place of the private cluster: an emulated one of {RATE_BPS / 1e6:g} Mbit/s on this machine, "
            f"where steps of the paper's models are replayed, scaled so that all parameters take "
            f"{TRANSFER_S:g} s; {ROUNDS} rounds of {NUM_STEPS} steps, {SKIP} left out, workers beginning at "
            "moments drawn anew, which predictions know. Batch sizes become ratios of communication to "
            "computing." + (f" Not run: {found.replays.refused}." if found.replays.refused else ""),
            f"Fig. 10 is timed between {LOOPBACK_WORKERS} processes of this machine; Fig. 12's sizes are "
            "ours.",
        ),
        claims=tuple(judged(claim, found) for claim in CLAIMS),
        tables=(),
        figures=(
            _figure_2(found),
            _figure_3(found),
            _figure_10(found),
            _figure_12(found),
            *_replayed(found),
            _figure_21(found),
            _figure_22(found),
            _figure_23(found),
            _figure_25(found),
        ),
        missing=_missing(found),
    )


def _missing(found: PredictionMeasurements) -> tuple[Missing, ...]:
    missing = [
        Missing(
            number="Table 1",
            why="errors of the ends of HTTP/2 streams, against packets captured under TensorFlow's gRPC",
            instead="Fig. 12 shows the model that the table judges, and tests hold it to a plain Algorithm "
            "3.1",
        ),
        Missing(
            number="Figs. 13, 14",
            why="gRPC's flow control is not in the replays' transport, which sends whole messages",
            instead="the same settings with flow control off, which is Fig. 17",
        ),
        Missing(
            number="Fig. 20",
            why="needs AWS c4.8xlarge, and its processor is not calibrated",
            instead="nothing",
        ),
        Missing(
            number="Figs. 21, 25, measured",
            why="needs AWS p3.2xlarge; measured points are not in the paper's text",
            instead="predictions for derived V100s, and two published models beside them",
        ),
        Missing(
            number="Fig. 24, states",
            why="it shows which states links can have, not a result",
            instead="shares in all states of 2 and 3 workers are compared with section 5",
        ),
    ]
    if found.replays.refused:
        missing.append(
            Missing(
                number="Figs. 13, 14, 17, 18, 19",
                why=found.replays.refused,
                instead="'hocket reproduce prediction' as root replays them on an emulated cluster",
            )
        )
    return tuple(missing)


def _line(name: str, curve: Curve, what: str = "throughput") -> Series:
    return Series(
        name=name,
        x=tuple(float(row.workers) for row in curve.rows),
        y=tuple(getattr(row, what) for row in curve.rows),
    )


def _figure_2(found: PredictionMeasurements) -> PaperFigure:
    series = tuple(_line(f"batch {size}", found.of(SCALED, size)) for size in BATCH_SIZES)
    panel = PlotAxes(title="predicted", x="workers", y=_RATE, series=series)
    return PaperFigure(number="Fig. 2", caption="Inception v3 on V100s by batch size", panels=(panel,))


def _models(curve: Curve) -> tuple[Series, ...]:
    return (
        _line("Hocket", curve),
        _line("Lin et al.", curve, "lin"),
        _line("Cynthia", curve, "cynthia"),
    )


def _figure_3(found: PredictionMeasurements) -> PaperFigure:
    panel = PlotAxes(
        title="Inception v3, batches of 64", x="workers", y=_RATE, series=_models(found.of(SCALED, 64))
    )
    return PaperFigure(number="Fig. 3c", caption="Predictions by method", panels=(panel,))


def _figure_10(found: PredictionMeasurements) -> PaperFigure:
    assert found.network.fits is not None
    panel = fit_panel(found.network.fits.parse, title="", line="alpha size + beta")
    return PaperFigure(number="Fig. 10", caption="Cost of a message to its receiver", panels=(panel,))


def _figure_12(found: PredictionMeasurements) -> PaperFigure:
    lanes = list(STREAMS)
    series = tuple(
        Series(
            name=f"{stream}, {units} units",
            x=tuple(chunk.units for chunk in found.chunks if chunk.stream == stream),
            y=tuple(float(lanes.index(stream)) for chunk in found.chunks if chunk.stream == stream),
            base=tuple(chunk.begin for chunk in found.chunks if chunk.stream == stream),
            kind="bars",
        )
        for stream, units in STREAMS.items()
    )
    panel = PlotAxes(title=f"window of {WINDOW}", x="units sent", y="", series=series, lanes=tuple(STREAMS))
    return PaperFigure(number="Fig. 12", caption="Streams in one connection", panels=(panel,))


def _rates(rows: Sequence[AccuracyRow]) -> tuple[Series, ...]:
    x = tuple(float(row.workers) for row in rows)
    return (
        Series(name="Hocket", x=x, y=tuple(row.predicted for row in rows)),
        Series(name="Lin et al.", x=x, y=tuple(row.lin for row in rows)),
        Series(name="Cynthia", x=x, y=tuple(row.cynthia for row in rows)),
        Series(name="replayed", x=x, y=tuple(row.measured for row in rows), kind="points"),
    )


def _panel(title: str, rows: Sequence[AccuracyRow]) -> PlotAxes:
    return PlotAxes(title=title, x="workers", y=_RATE, series=_rates(rows))


def _replayed(found: PredictionMeasurements) -> tuple[PaperFigure, ...]:
    """Figs. 13 and 17a-c, 14 and 17d-f, 18 and 19, where they were replayed."""
    replays = found.replays
    if replays.refused:
        return ()
    steps = dict.fromkeys(row.step for row in replays.models)

    def of(step: str, policy: str) -> list[AccuracyRow]:
        return [row for row in replays.models if (row.step, row.policy) == (step, policy)]

    return (
        PaperFigure(
            number="Figs. 13, 17a-c",
            caption="AlexNet by batch size, as ratios of communication to computing",
            panels=tuple(_panel(f"rho {rho:g}", rows) for rho, rows in replays.batches.items()),
        ),
        PaperFigure(
            number="Figs. 14, 17d-f",
            caption="Models, in program order",
            panels=tuple(_panel(NAMES[step], of(step, "fifo")) for step in steps),
        ),
        PaperFigure(
            number="Fig. 18",
            caption="AlexNet in three orders",
            panels=tuple(
                _panel(order, [row for row in replays.orders if row.policy == order])
                for order in dict.fromkeys(row.policy for row in replays.orders)
            ),
        ),
        PaperFigure(
            number="Fig. 19",
            caption="Models, in TIC's order",
            panels=tuple(_panel(NAMES[step], of(step, "tic")) for step in steps),
        ),
    )


def _figure_21(found: PredictionMeasurements) -> PaperFigure:
    cases = [(SCALED, size) for size in BATCH_SIZES]
    cases += [(model, size) for model in MODELS for size in MODEL_BATCH_SIZES]
    return PaperFigure(
        number="Fig. 21",
        caption="V100s by model and batch size, predicted",
        panels=tuple(
            PlotAxes(
                title=f"{NAMES[model]}, batches of {size}",
                x="workers",
                y=_RATE,
                series=_models(found.of(model, size)),
            )
            for model, size in cases
        ),
    )


def _figure_22(found: PredictionMeasurements) -> PaperFigure:
    names = ("paper: measuring", "paper: predicting", "Hocket")
    panel = PlotAxes(
        title=f"Inception v3, batches of {TIMED_BATCH_SIZE}, {TIMED_STEPS} steps",
        x="",
        y="s",
        series=(Series(name="seconds", x=names, y=(MEASURING_S, PREDICTING_S, found.timed_s), kind="bars"),),
    )
    return PaperFigure(number="Fig. 22", caption="Cost of an answer", panels=(panel,))


def _figure_23(found: PredictionMeasurements) -> PaperFigure:
    names = ("server 1", "server 2")
    panel = PlotAxes(
        title=NAMES[PARTITIONED],
        x="",
        y="MiB",
        series=(
            Series(name="paper", x=names, y=PARTITION_MIB, kind="bars"),
            Series(name="ours", x=names, y=tuple(sorted(found.partition_mib, reverse=True)), kind="bars"),
        ),
    )
    return PaperFigure(number="Fig. 23", caption="Parameters on two servers", panels=(panel,))


def _figure_25(found: PredictionMeasurements) -> PaperFigure:
    return PaperFigure(
        number="Fig. 25",
        caption="One and two servers on V100s, predicted",
        panels=tuple(
            PlotAxes(
                title=f"{NAMES[model]}, batches of {PAIRED_BATCH_SIZE}",
                x="workers",
                y=_RATE,
                series=(
                    _line("1 server", found.of(model, PAIRED_BATCH_SIZE)),
                    _line("2 servers", found.of(model, PAIRED_BATCH_SIZE, 2)),
                ),
            )
            for model in PAIRED
        ),
    )
