"""The circumstances of a reproduction: versions, hardware, the day."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hocket import __version__
from hocket.reproduce.reproduction import Circumstances
from hocket.reproduce.setting import ReproductionSetting

_PACKAGES = ("torch", "numpy", "numba", "scipy")


def circumstances(command: str, setting: ReproductionSetting) -> Circumstances:
    """Those of this process, which ``command`` started."""
    return Circumstances(
        command=command,
        hardware=f"{len(os.sched_getaffinity(0))} cores of {_processor()}, {_memory_gib():.0f} GiB, Linux",
        load=round(os.getloadavg()[2], 1),
        versions=", ".join(
            [f"Hocket {__version__}", f"Python {platform.python_version()}", *map(_named, _PACKAGES)]
        ),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        seed=setting.seed,
        quick=setting.quick,
    )


def _named(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
