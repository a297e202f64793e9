"""The margin of a mean of independent runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def interval_95(values: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float | None, float | None]:
    """The 95% confidence interval of the mean of ``values`` (Student's t); (None, None) of a single one."""
    if len(values) < 2:
        return None, None
    from scipy.stats import t

    runs = np.asarray(values, dtype=np.float64)
    mean = float(runs.mean())
    half = float(t.ppf(0.975, len(runs) - 1) * runs.std(ddof=1) / np.sqrt(len(runs)))
    return mean - half, mean + half
