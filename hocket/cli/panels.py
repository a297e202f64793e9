"""Panels of help texts, and options that stand in one."""

from __future__ import annotations

from typing import Any

import typer

PLANNING, WORKERS, NETWORK = "Planning", "Workers and servers", "Network"
PROFILE, SIMULATION, OUTPUT, GENERAL = "Profile", "Simulation", "Output", "General"
BENCHMARK, JOBS, MACHINES = "Benchmark", "Jobs", "Machines"
SCHEDULING, MANAGER = "Placement and policy", "Manager"
OFFERS, TRAINED = "Offers", "The job"
SERVERS, PROCESSES = "Parameter servers (--architecture ps)", "Processes (torchrun's)"
ORDER = (
    *(OFFERS, TRAINED),
    *(JOBS, SCHEDULING, MACHINES, MANAGER, BENCHMARK),
    *(PROFILE, PLANNING, PROCESSES, WORKERS, SERVERS, NETWORK, SIMULATION, OUTPUT, GENERAL),
)
"""Panels as they follow on each other; others come in front."""


def option(*names: str, panel: str, rare: bool = False, **more: Any) -> Any:
    """An option of a command, in one panel of its help; choices are taken in any case.

    ``rare``: listed by ``--help-all`` only; ``more``: as :func:`typer.Option` takes it.
    """
    return typer.Option(*names, rich_help_panel=panel, hidden=rare, case_sensitive=False, **more)
