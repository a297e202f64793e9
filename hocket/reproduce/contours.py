"""Lines of equal utilization in the plane of rho and overlap (TicTac, Fig. 4; Caramel, Fig. 2)."""

from __future__ import annotations

import numpy as np

from hocket.reproduce.reproduction import Series

_LEVELS = (0.5, 0.7, 0.9)
_LEAST_RHO = 0.02
_POINTS = 80


def utilization_lines(largest_rho: float) -> tuple[Series, ...]:
    """alpha = (1 + rho - 1/U) / min(rho, 1), where it is an overlap, for some utilizations U."""
    rho = np.linspace(_LEAST_RHO, largest_rho, _POINTS)
    lines = []
    for utilization in _LEVELS:
        alpha = (1 + rho - 1 / utilization) / np.minimum(rho, 1)
        inside = (alpha >= 0) & (alpha <= 1)
        lines.append(
            Series(
                name=f"utilization {utilization:.0%}",
                x=tuple(rho[inside].tolist()),
                y=tuple(alpha[inside].tolist()),
            )
        )
    return tuple(lines)
