"""Runs behind the prediction paper's figures: predictions for V100s, replays, and timings."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

from hocket.network import Network, NetworkFile
from hocket.predictor import Prediction, predict
from hocket.reproduce.loopback import measured_network
from hocket.reproduce.prediction.replayed_cluster import Replays, replays
from hocket.reproduce.prediction.stream_sharing import Chunk, agreements, multiplexed, partition
from hocket.reproduce.setting import Progress, ReproductionSetting
from hocket.reproduce.steps import derived

# The paper gives no alpha: "if overhead accounts for 10% of a message's duration at 1 Gbit/s, it accounts for
# 52.6% at 10 Gbit/s" (section 4.3) is a byte in 8 ns / 9.
PARSE_S_PER_BYTE = 8e-9 / 9
CLOUD = Network(bandwidth_bps=10e9, parse_s_per_byte=PARSE_S_PER_BYTE)
DEVICE, SAMPLES, JITTER = "v100", 20, 0.05
SCALED = "inception_v3"
BATCH_SIZES = (16, 32, 64, 128)
MODELS = ("alexnet_v2", "googlenet", "resnet50_v1", "vgg11")
"""Beside Inception v3, those of Fig. 21."""
MODEL_BATCH_SIZES = (32, 64)
WORKERS = tuple(range(1, 11))
PAIRED = ("googlenet", "inception_v3", "resnet50_v1", "vgg11")
"""The models of Fig. 25."""
PAIRED_WORKERS = (1, 2, 4, 6, 8)
PAIRED_BATCH_SIZE = 32
TIMED_BATCH_SIZE = 128
TIMED_STEPS = 1000
"""Those that the paper timed (section 4.5)."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One model and batch size on the cloud's V100s over the number of workers."""

    model: str
    batch_size: int
    servers: int
    rows: tuple[Prediction, ...]


@dataclass(frozen=True, kw_only=True)
class PredictionMeasurements:
    """Everything; ``timed_s``: of deriving and predicting Inception v3 on 2 to 10 workers."""

    curves: tuple[Curve, ...]
    replays: Replays
    network: NetworkFile
    chunks: tuple[Chunk, ...]
    partition_mib: tuple[float, ...]
    agreements: tuple[bool, ...]
    timed_s: float

    @cached_property
    def _by_key(self) -> dict[tuple[str, int, int], Curve]:
        return {(curve.model, curve.batch_size, curve.servers): curve for curve in self.curves}

    def of(self, model: str, batch_size: int, servers: int = 1) -> Curve:
        """The curve of a model, batch size and number of servers."""
        return self._by_key[model, batch_size, servers]


def measure(setting: ReproductionSetting, progress: Progress | None) -> PredictionMeasurements:
    """Time messages, replay where a cluster can be emulated, and predict; predictions use all cores."""
    network = measured_network(setting, progress)
    replayed = replays(setting, progress)
    wanted = [(SCALED, batch_size, 1, WORKERS) for batch_size in BATCH_SIZES]
    wanted += [(model, batch_size, 1, WORKERS) for model in MODELS for batch_size in MODEL_BATCH_SIZES]
    wanted += [(model, PAIRED_BATCH_SIZE, 2, PAIRED_WORKERS) for model in PAIRED]
    curves = []
    for number, (model, batch_size, servers, workers) in enumerate(wanted):
        if progress is not None:
            progress(number, len(wanted) + 1, f"Prediction: {model}, batches of {batch_size}")
        curves.append(curve_of(model, batch_size, servers, workers, setting))
    return PredictionMeasurements(
        curves=tuple(curves),
        replays=replayed,
        network=network,
        chunks=multiplexed(),
        partition_mib=partition(),
        agreements=tuple(agreements(2) + agreements(3)),
        timed_s=timed(setting),
    )


def curve_of(
    model: str, batch_size: int, servers: int, workers: tuple[int, ...], setting: ReproductionSetting
) -> Curve:
    """Asynchronous training with the HTTP/2 window, as TensorFlow sends: pulls in program order."""
    graph = derived(model, batch_size, device=DEVICE, samples=SAMPLES, jitter=JITTER, seed=setting.seed)
    rows = predict(
        graph,
        CLOUD,
        workers=workers,
        servers=[servers],
        mode="async",
        steps=setting.predicted_steps,
        skip=setting.skipped_steps,
        seed=setting.seed,
    )
    return Curve(model=model, batch_size=batch_size, servers=servers, rows=tuple(rows))


def timed(setting: ReproductionSetting) -> float:
    """Seconds that the paper's own case takes (section 4.5), the step's derivation included."""
    started = time.perf_counter()
    derived.cache_clear()
    graph = derived(SCALED, TIMED_BATCH_SIZE, device=DEVICE, samples=100, jitter=JITTER, seed=setting.seed)
    predict(graph, CLOUD, workers=range(2, 11), mode="async", steps=TIMED_STEPS, seed=setting.seed)
    return time.perf_counter() - started
