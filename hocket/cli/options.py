"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hocket.cli.panels import GENERAL, OUTPUT, SIMULATION, WORKERS, option
from hocket.cli.printing import note_at_end
from hocket.errors import HocketError

WORKERS_ASSUMED = 4
"""Workers where none are asked for: plan and simulate agree with what tune has ranked."""
# But for plans and simulations with servers, whose scripts rely on it: of one worker's pulls and pushes.
_SERVED_WORKERS = 1


def _no_model(step: Path) -> Path:
    """Refuse a model's name where its step is asked for."""
    if len(step.parts) == 1 and not step.suffix and not step.exists():
        from hocket import models

        if step.name.lower() in models.names():
            name = step.name.lower()
            raise HocketError(
                f"{step} is a model, and a step is asked for: hocket profile {name} -o {name}.step.json"
            )
    return step


Step = Annotated[
    Path,
    typer.Argument(
        metavar="STEP", help="A hocket.step/1 file (.json, .json.gz or .json.zst).", callback=_no_model
    ),
]
Workers = Annotated[
    int,
    option("--workers", panel=WORKERS, metavar="N", help="Workers that train together."),
]
Servers = Annotated[
    int,
    option(
        "--servers",
        panel=WORKERS,
        metavar="N",
        help="Parameter servers; parameters are spread over them by bytes.",
    ),
]
Iterations = Annotated[
    int, option("--iterations", panel=SIMULATION, metavar="N", min=1, help="Steps to simulate.")
]
Seed = Annotated[
    int,
    option("--seed", panel=GENERAL, metavar="N", min=0, max=2**63 - 1, help="Decides every random draw."),
]
Timeout = Annotated[
    str, option("--timeout", panel=GENERAL, metavar="TIME", help="For how long all of it may go on.")
]
Json = Annotated[bool, option("--json", panel=OUTPUT, help="Print one JSON document instead of a table.")]
Wide = Annotated[bool, option("--wide", panel=OUTPUT, help="All columns of the table, each explained.")]


@dataclass(frozen=True, kw_only=True)
class WorkersOptions:
    """Options for workers and their servers."""

    workers: Workers = WORKERS_ASSUMED
    servers: Servers = 1


@dataclass(frozen=True, kw_only=True)
class UsualWorkersOptions:
    """Options for workers and their servers, where the usual number of workers is the exchange's."""

    workers: Annotated[
        int | None,
        option(
            "--workers",
            panel=WORKERS,
            metavar="N",
            help="Workers that train together.",
            show_default=f"{WORKERS_ASSUMED}; with parameter servers {_SERVED_WORKERS}",
        ),
    ] = None
    servers: Servers = 1

    def num_workers(self, architecture: str) -> int:
        """The workers of a plan or a simulation: as many as were asked for, or as is usual."""
        if self.workers is not None:
            return self.workers
        return _SERVED_WORKERS if architecture == "ps" else WORKERS_ASSUMED


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """Options for simulated steps."""

    iterations: Iterations = 20
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class PrintOptions:
    """Options for what is printed."""

    wide: Wide = False
    json: Json = False

    def check(self) -> None:
        """Refuse two options that say what is printed, differently."""
        check_printed(self.json, self.wide)


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """Options for how traces are read."""

    execution_trace: Annotated[
        Path | None,
        option(panel=GENERAL, metavar="FILE", help="The first rank's ExecutionTrace: shapes and dataflow."),
    ] = None
    batch_size: Annotated[
        int | None,
        option(panel=GENERAL, metavar="N", min=1, help="Examples in a step.", show_default="as recorded"),
    ] = None
    partial: Annotated[
        bool,
        option(
            "--partial",
            panel=GENERAL,
            help="Read a trace that is cut, as far as it goes: its whole steps count.",
        ),
    ] = False


def check_printed(json: bool, wide: bool) -> None:
    """Refuse two options that say what is printed, differently."""
    if json and wide:
        raise HocketError("--wide is for the table, and --json prints none; leave one of them out")


def check_servers(servers: int, architecture: str) -> None:
    """Refuse a number of servers where there are none to choose."""
    if architecture != "ps" and servers != 1:
        what = "all-reduce has" if architecture == "allreduce" else "fully sharded training has"
        raise HocketError(f"{servers} servers: {what} none to choose; leave them out")


def inputs(*paths: Path | None) -> list[Path]:
    """The files among ``paths`` that were given: no output may overwrite them."""
    return [path for path in paths if path is not None]


def check_written(output: Path, *others: str | Path) -> None:
    """As :func:`hocket.document.check_writable`; at the end a file that was there is said to be replaced."""
    from hocket.document import check_writable, is_replaced

    check_writable(output, *others)
    if is_replaced(output):
        note_at_end(f"{output}: the file that was there is replaced")


def check_beside_result(output: Path, *others: Path) -> None:
    """As :func:`check_written`, of a command that prints its result: a file beside it."""
    from hocket.document import is_standard_output

    if is_standard_output(output):
        raise HocketError(f"{output}: standard output is for the result; name a file")
    check_written(output, *others)


def check_apart(one: Path, other: Path, what: str) -> None:
    """Refuse two outputs in one file, which would hold the last of them."""
    if one.resolve() == other.resolve():
        raise HocketError(f"{one}: is to be both {what}; name two files")
