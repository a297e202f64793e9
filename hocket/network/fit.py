"""Lines through measured times: least squares on the relative error, coefficients that are not negative.

Over the sizes that are measured, times grow from microseconds to seconds. Absolute errors would let the
largest sizes decide everything; relative ones weigh every size alike, so that both ends of the line count.

Two coefficients that must not be negative need no general solver: the sum of squares is convex, so where the
free optimum breaks a sign, the optimum lies where one of the two is 0, and that leaves one unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from hocket.network.file import Fit, MeasuredPoint
from hocket.network.fit_quality import POOR_FIT
from hocket.network.units import LEAST_S

Floats = npt.NDArray[np.float64]


def fit_line(points: Sequence[MeasuredPoint], *, power: float = 1.0) -> Fit:
    """Fit t(d) = a + b d to ``points``: one transfer, message or reduction each.

    Errors count in units of the time to this ``power``: 1 weighs every size alike; less weighs large ones
    more, as they do in what many transfers of all sizes take together.
    """
    sizes, _, seconds = _columns(points)
    free, (a_s, b_s_per_byte) = _least_squares(
        np.column_stack([np.ones_like(sizes), sizes]), seconds, seconds**power
    )
    notes = _held(("a", "s", free[0]), ("b", "s/byte", free[1]))
    return _judged(points, a_s, b_s_per_byte, 0.0, notes)


def fit_contention(points: Sequence[MeasuredPoint], a_s: float) -> Fit:
    """Fit T = a + k b M + (k-1) eta M to k concurrent reductions of M bytes each.

    Source: Wang et al. 2020, section III, Figure 2. With one M a constant cannot be told from eta (k b M and
    (k-1) eta M differ by one M), so ``a_s`` comes from reductions on their own. b is these points' own: what
    the line through all sizes is off at this M would otherwise pass for contention.
    """
    sizes, counts, seconds = _columns(points)
    columns = np.column_stack([counts * sizes, (counts - 1) * sizes])
    free, (b_s_per_byte, eta_s_per_byte) = _least_squares(columns, seconds - a_s, seconds)
    notes = _held(("b", "s/byte", free[0]), ("eta", "s/byte", free[1]))
    return _judged(points, a_s, b_s_per_byte, eta_s_per_byte, notes)


def _columns(points: Sequence[MeasuredPoint]) -> tuple[Floats, Floats, Floats]:
    """Sizes, counts and seconds, (p,) each."""
    table = np.array([(p.size_bytes, p.concurrent, p.seconds) for p in points], dtype=np.float64)
    return table[:, 0], table[:, 1], table[:, 2]


def _least_squares(columns: Floats, target: Floats, scale: Floats) -> tuple[list[float], list[float]]:
    """Two coefficients for ``columns`` (p, 2), free and not negative; ``scale`` (p,): units of errors."""
    # Bytes and ones differ by seven orders of magnitude: bring the columns to one length before solving.
    weighted, wanted = columns / scale[:, None], target / scale
    lengths = np.linalg.norm(weighted, axis=0)
    lengths[lengths == 0] = (
        1.0  # one reduction at a time says nothing about eta: its column is 0, and so is it
    )
    unit = weighted / lengths
    free = np.linalg.lstsq(unit, wanted)[0]
    best = free
    if free.min() < 0:
        alone = np.maximum(unit.T @ wanted, 0.0)  # each of the two on its own: the columns have length 1
        best = min(np.diag(alone), key=lambda x: float(np.sum((unit @ x - wanted) ** 2)))
    return (free / lengths).tolist(), (best / lengths).tolist()


def _held(*coefficients: tuple[str, str, float]) -> str:
    """A remark on free coefficients that came out negative; "" where none did."""
    return "; ".join(
        f"{name} = {free:.3g} {unit} fits best, held at 0" for name, unit, free in coefficients if free < 0
    )


def _judged(
    points: Sequence[MeasuredPoint], a_s: float, b_s_per_byte: float, eta_s_per_byte: float, note: str
) -> Fit:
    """The fit with these coefficients and how far it is from ``points``; what is only rounding is 0."""
    fit = Fit(
        a_s=a_s if a_s >= LEAST_S else 0.0,
        b_s_per_byte=b_s_per_byte if b_s_per_byte >= LEAST_S else 0.0,
        eta_s_per_byte=eta_s_per_byte if eta_s_per_byte >= LEAST_S else 0.0,
        rms_error=0.0,
        max_error=0.0,
        points=tuple(points),
        note=note,
    )
    errors = np.array([fit.seconds(p.size_bytes, p.concurrent) / p.seconds - 1 for p in points])
    rms_error = float(np.sqrt(np.mean(errors**2)))
    if rms_error > POOR_FIT:
        poor = (
            f"points are {rms_error:.0%} (rms) from the line; more timings of each size, or larger ones, may"
            " help"
        )
        note = f"{note}; {poor}" if note else poor
    return msgspec.structs.replace(fit, rms_error=rms_error, max_error=float(np.abs(errors).max()), note=note)
