"""Messages and reductions timed between processes of this machine, in place of the papers' networks."""

from __future__ import annotations

from functools import cache

from hocket.network import NetworkFile
from hocket.network.file import Fit
from hocket.profiler import measure_network
from hocket.reproduce.reproduction import PlotAxes, Series
from hocket.reproduce.setting import Progress, ReproductionSetting

WORKERS = 2
CONCURRENT = 8
"""As many reductions at once as the contention paper's Fig. 2b has."""


def measured_network(setting: ReproductionSetting, progress: Progress | None) -> NetworkFile:
    """The network between two processes here, on loopback: measured once for all papers."""
    if progress is not None:
        progress(0, 1, "timing messages between two processes")
    return _measured(setting.network_repeats)


@cache
def _measured(repeats: int) -> NetworkFile:
    found = measure_network(workers=WORKERS, repeats=repeats, concurrent=CONCURRENT)
    assert found is not None, "processes that are started here answer here"
    return found


def fit_panel(fit: Fit, *, title: str, line: str) -> PlotAxes:
    """Axes with the times by size, and the ``line`` that was fitted to them, both logarithmic."""
    sizes_mb = tuple(point.size_bytes / 1e6 for point in fit.points)
    measured_ms = tuple(1e3 * point.seconds for point in fit.points)
    fitted_ms = tuple(1e3 * fit.seconds(point.size_bytes) for point in fit.points)
    return PlotAxes(
        title=title,
        x="MB",
        y="ms",
        x_log=True,
        y_log=True,
        series=(
            Series(name="measured", x=sizes_mb, y=measured_ms, kind="points"),
            Series(name=line, x=sizes_mb, y=fitted_ms),
        ),
    )
