"""Options of benchmarks that run on an emulated cluster."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.cli import options
from hocket.network import parse_duration


@dataclass(frozen=True, kw_only=True)
class LabRunOptions:
    """Options for a run on an emulated cluster: how long it may take, and its random draws."""

    timeout: options.Timeout = "28800s"
    seed: options.Seed = 0

    def timeout_s(self) -> float:
        """The seconds of ``--timeout``."""
        return parse_duration(self.timeout)
