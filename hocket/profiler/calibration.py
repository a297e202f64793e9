"""Fitting the roofline to papers' throughputs, and how far off it stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from hocket import models
from hocket.datasheets import is_derived
from hocket.errors import HocketError
from hocket.graph import Phase
from hocket.profiler._cost import CallWork
from hocket.profiler._expected_error import CARD_FIGURES
from hocket.profiler._fake import fake
from hocket.profiler._step import make_step
from hocket.profiler.device import record_works
from hocket.profiler.paper_roofline import FITTED, LAUNCH_S, Factors, duration_s

_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PublishedThroughput:
    """One published throughput of one device."""

    device: str
    model: str
    batch_size: int
    images_s: float
    """Samples per second; a sample of ``lstm_ptb`` is a sequence of 35 words."""
    with_update: bool
    """True if the optimizer's update is in it."""
    source: str


@dataclass(frozen=True, kw_only=True)
class Residual:
    """A published figure beside the roofline's."""

    device: str
    model: str
    batch_size: int
    published_images_s: float
    predicted_images_s: float
    source: str

    @property
    def ratio(self) -> float:
        """Predicted over published."""
        return self.predicted_images_s / self.published_images_s


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Fitted factors and what they leave unexplained."""

    factors: Factors
    residuals: tuple[Residual, ...]


def _tensorflow(device: str, model: str, batch_size: int, images_s: float) -> PublishedThroughput:
    return PublishedThroughput(
        device=device,
        model=model,
        batch_size=batch_size,
        images_s=images_s,
        with_update=True,
        source="TensorFlow benchmarks, May 2017, synthetic data",
    )


def _table_3(model: str, batch_size: int, forward_s: float, backward_s: float) -> PublishedThroughput:
    return PublishedThroughput(
        device="v100",
        model=model,
        batch_size=batch_size,
        images_s=batch_size / (forward_s + backward_s),
        with_update=False,
        source="contention.txt, Table III, forward and backward (ResNet-50 of others: 367 and 369/s at 128)"
        if model == "resnet50_v1"
        else "contention.txt, Table III, forward and backward",
    )


PUBLISHED = (
    _tensorflow("k80", "inception_v3", 64, 30.5),
    _tensorflow("k80", "inception_v3", 32, 29.3),
    _tensorflow("k80", "resnet50_v1", 64, 51.9),
    _tensorflow("k80", "resnet50_v1", 32, 49.5),
    _tensorflow("k80", "resnet152_v2", 32, 20.0),
    _tensorflow("k80", "alexnet_v2", 512, 656.0),
    _tensorflow("k80", "vgg16", 32, 35.4),
    _tensorflow("p100", "inception_v3", 64, 142.0),
    _tensorflow("p100", "resnet50_v1", 64, 219.0),
    _tensorflow("p100", "resnet152_v2", 64, 91.8),
    _tensorflow("p100", "alexnet_v2", 512, 2987.0),
    _tensorflow("p100", "vgg16", 64, 154.0),
    # Table III's backward times are 1.5 times its forward times throughout, so only the sums tell something.
    _table_3("vgg16", 16, 35.8e-3, 53.7e-3),
    _table_3("resnet50_v1", 16, 25.0e-3, 37.4e-3),
    _table_3("inception_v3", 16, 34.9e-3, 52.4e-3),
    _table_3("lstm_ptb", 64, 31.5e-3, 47.3e-3),
)

_FITTED_DEVICES = tuple(dict.fromkeys(figure.device for figure in PUBLISHED))


# Predicted over published, in the order of PUBLISHED: what `residuals` gives, stored so that a command can
# print it at once; a test holds them to it.
_RATIOS = (
    1.099,
    1.138,
    0.973,
    1.014,
    0.950,
    0.938,
    0.931,
    1.022,
    0.957,
    0.914,
    1.038,
    1.041,
    1.080,
    1.002,
    0.964,
    0.969,
)


def stored_residuals(device: str, precision: str = "fp32") -> list[Residual]:
    """Residuals of the published figures that a derived step's durations are fitted to, at once.

    Of a K80 and a P100 in float32 those of :func:`residuals`; none for a device without figures.
    """
    if device not in ("k80", "p100"):
        return [
            Residual(
                device=device,
                model=figure.model,
                batch_size=figure.batch_size,
                published_images_s=figure.published_per_s,
                predicted_images_s=figure.ratio_left_out * figure.published_per_s,
                source="Lambda's benchmark; this card left out of the fit",
            )
            for figure in CARD_FIGURES
            if (figure.device, figure.precision) == (device, precision)
        ]
    return stored_of_papers(device) if precision == "fp32" else []


def stored_of_papers(device: str) -> list[Residual]:
    """Residuals as of :func:`residuals`, at once and to three decimals."""
    return [
        Residual(
            device=figure.device,
            model=figure.model,
            batch_size=figure.batch_size,
            published_images_s=figure.images_s,
            predicted_images_s=ratio * figure.images_s,
            source=figure.source,
        )
        for figure, ratio in zip(PUBLISHED, _RATIOS, strict=True)
        if figure.device == device
    ]


def residuals(device: str) -> list[Residual]:
    """Compare the stored factors with every published figure of ``device``; takes seconds a model.

    Empty for an uncalibrated device; HocketError for one that is measured or unknown.
    """
    if not is_derived(device):
        raise HocketError(f"device '{device}' is measured, not derived; it has no residuals")
    return [_residual(figure, FITTED) for figure in PUBLISHED if figure.device == device]


def calibrate() -> Calibration:
    """Fit the roofline to all published figures at once.

    Five factors (compute efficiency of K80, P100 and V100, memory efficiency and Winograd speed-up for all)
    over the 16 figures of ``PUBLISHED``, least squares of log(predicted / published) by Gauss-Newton. Differs
    from the figures' own conditions: TensorFlow's Inception-v3 has no auxiliary head, its ResNet-152 is v1.
    """

    def errors(logarithms: _Vector) -> _Vector:
        factors = _factors(logarithms)
        return np.array([np.log(_residual(figure, factors).ratio) for figure in PUBLISHED])

    start = np.log([*[0.5] * len(_FITTED_DEVICES), 0.5, 2.0])
    factors = _factors(_gauss_newton(errors, start))
    return Calibration(factors=factors, residuals=tuple(_residual(figure, factors) for figure in PUBLISHED))


def _factors(logarithms: _Vector) -> Factors:
    *matrix, memory, winograd_speedup = np.exp(logarithms).tolist()
    return Factors(
        matrix=dict(zip(_FITTED_DEVICES, matrix, strict=True)),
        memory=memory,
        winograd_speedup=winograd_speedup,
        launch_s=LAUNCH_S,
    )


def _residual(figure: PublishedThroughput, factors: Factors) -> Residual:
    works = _works(figure.model, figure.batch_size, figure.with_update)
    step_s = sum(duration_s(work, figure.device, factors) for work in works)
    return Residual(
        device=figure.device,
        model=figure.model,
        batch_size=figure.batch_size,
        published_images_s=figure.images_s,
        predicted_images_s=figure.batch_size / step_s,
        source=figure.source,
    )


@cache
def _works(model: str, batch_size: int, with_update: bool) -> tuple[CallWork, ...]:
    with fake():
        setup = models.make(model, batch_size)
    recorder, works = record_works(make_step(*setup))
    return tuple(
        work
        for operation, work in zip(recorder.operations, works, strict=True)
        if with_update or operation.phase is not Phase.UPDATE
    )


def _gauss_newton(errors: Callable[[_Vector], _Vector], start: _Vector) -> _Vector:
    """Minimize the sum of squared ``errors`` from ``start``: full steps, halved until they help."""
    point, error = start, errors(start)
    for _ in range(50):
        shifts = np.eye(len(point)) * 1e-4
        jacobian = np.stack([(errors(point + shift) - error) / 1e-4 for shift in shifts], axis=1)
        move = -np.linalg.lstsq(jacobian, error, rcond=None)[0]
        for halvings in range(20):
            candidate = point + move / 2**halvings
            candidate_error = errors(candidate)
            if candidate_error @ candidate_error < error @ error:
                break
        else:
            break
        point, error = candidate, candidate_error
        if np.abs(move).max() < 1e-7:
            break
    return point
