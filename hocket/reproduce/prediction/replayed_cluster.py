"""The private cluster's figures on an emulated cluster: steps replayed beside what is predicted of them.

Replays send whole messages in the plan's order: that is the paper's cluster with flow control disabled, so
that Fig. 17's settings stand for those of Figs. 13 and 14. A batch size is a ratio of communication to
computing.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.bench.replay.accuracy import bench_predict
from hocket.bench.replay.accuracy_request import AccuracyRequest
from hocket.bench.replay.accuracy_statistics import AccuracyRow
from hocket.errors import HocketError
from hocket.lab.links import check_machine
from hocket.reproduce.setting import Progress, ReproductionSetting

WORKERS = (1, 2, 4)
RHOS = (4.0, 2.0, 1.0)
ORDERS = ("tic", "reverse", "random")
MODELS = ("googlenet", "inception_v3", "resnet50_v1", "vgg11")
BATCHED = "alexnet_v2"
RATE_BPS, TRANSFER_S, NUM_STEPS, SKIP, ROUNDS = 250e6, 0.15, 8, 2, 3


@dataclass(frozen=True, kw_only=True)
class Replays:
    """Rows of each figure; none and the reason in ``refused`` where no cluster could be emulated."""

    batches: dict[float, tuple[AccuracyRow, ...]]
    models: tuple[AccuracyRow, ...]
    orders: tuple[AccuracyRow, ...]
    refused: str = ""


def replays(setting: ReproductionSetting, progress: Progress | None) -> Replays:
    """Replay all of it, or say why not."""
    if setting.quick:
        return _none("--quick leaves the emulated cluster out")
    try:
        check_machine()
    except HocketError as error:
        return _none(str(error))
    batches = {}
    for number, rho in enumerate(RHOS):
        _tell(progress, number, f"replaying {BATCHED}, rho {rho:g}")
        batches[rho] = _replayed((BATCHED,), ("fifo",), rho, setting)
    _tell(progress, len(RHOS), "replaying models")
    models = _replayed(MODELS, ("fifo", "tic"), 1.0, setting)
    _tell(progress, len(RHOS) + 1, "replaying orders")
    orders = _replayed((BATCHED,), ORDERS, 1.0, setting)
    return Replays(batches=batches, models=models, orders=orders)


def _none(refused: str) -> Replays:
    return Replays(batches={}, models=(), orders=(), refused=refused)


def _tell(progress: Progress | None, done: int, what: str) -> None:
    if progress is not None:
        progress(done, len(RHOS) + 2, f"Prediction: {what}")


def _replayed(
    steps: tuple[str, ...], policies: tuple[str, ...], rho: float, setting: ReproductionSetting
) -> tuple[AccuracyRow, ...]:
    request = AccuracyRequest(
        steps=steps,
        policies=policies,
        modes=("async",),
        workers=WORKERS,
        servers=(1,),
        rate_bps=RATE_BPS,
        transfer_s=TRANSFER_S,
        rho=rho,
        num_steps=NUM_STEPS,
        skip=SKIP,
        rounds=ROUNDS,
        seed=setting.seed,
    )
    return tuple(bench_predict(request).rows)
