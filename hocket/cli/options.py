"""Options that several commands share, and the network they describe."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

import typer

from hocket.cli.name_options import complete_pattern, complete_policy, lowercase
from hocket.cli.panels import GENERAL, NETWORK, OUTPUT, PLANNING, SIMULATION, WORKERS, option
from hocket.cli.printing import note, warn
from hocket.errors import HocketError
from hocket.network import NetworkFile, PatternChoice, load_network, parse_bytes

WORKERS_ASSUMED = 4
"""Workers where none are asked for: plan and simulate agree with what tune has ranked."""
# But for plans and simulations with servers, whose scripts rely on it: of one worker's pulls and pushes.
_SERVED_WORKERS = 1

_POLICY = {"panel": PLANNING, "metavar": "NAME", "callback": lowercase, "autocompletion": complete_policy}


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
    typer.Argument(metavar="STEP", help="A hocket.step/1 file (.json or .json.zst).", callback=_no_model),
]
Policy = Annotated[
    str, option("--policy", help="Plan by this policy: tac, caramel; a wrong name lists all.", **_POLICY)
]
PolicyChoice = Annotated[
    str | None,
    option("--policy", help="Plan by this policy: tac, caramel; a wrong name lists all.", **_POLICY),
]
PlanFile = Annotated[
    Path | None,
    option("--plan", panel=PLANNING, metavar="FILE", help="A hocket.plan/1 file instead of a policy."),
]
Workers = Annotated[
    int,
    option("--workers", panel=WORKERS, metavar="N", help="Workers that train together."),
]
WorkersOrUsual = Annotated[
    int | None,
    option(
        "--workers",
        panel=WORKERS,
        metavar="N",
        help="Workers that train together.",
        show_default=f"{WORKERS_ASSUMED}; with parameter servers {_SERVED_WORKERS}",
    ),
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
NetworkPath = Annotated[
    Path | None,
    option(
        "--network",
        panel=NETWORK,
        metavar="FILE",
        help="A hocket.network/1 file, as hocket network measure writes it; given options win over it.",
    ),
]
Bandwidth = Annotated[
    str | None,
    option(
        "--bandwidth",
        panel=NETWORK,
        metavar="RATE",
        help="Of every interface, each way.",
        show_default="10Gbit/s",
    ),
]
Latency = Annotated[
    str | None,
    option("--latency", panel=NETWORK, metavar="TIME", help="Startup of each transfer.", show_default="0s"),
]
Architecture = Annotated[
    Literal["ps", "allreduce"] | None,
    option(
        "--architecture",
        panel=PLANNING,
        help="How gradients are exchanged.",
        show_default="the policy's; ps if an option is for servers; else allreduce",
    ),
]
Barrier = Annotated[
    Literal["step", "parameter"] | None,
    option(
        "--barrier",
        panel=PLANNING,
        rare=True,
        help="Parameter servers: what a worker waits for.",
        show_default="the policy's",
    ),
]
Fusion = Annotated[
    str,
    option(
        "--fusion",
        panel=PLANNING,
        rare=True,
        metavar="SIZE",
        help="Horovod's buffer: 64MB; 0B fuses nothing.",
    ),
]
PatternName = Annotated[
    PatternChoice | None,
    option(
        "--pattern",
        panel=NETWORK,
        metavar="NAME",
        autocompletion=complete_pattern,
        help="How every all-reduce runs: ring, tree, halving-doubling (MPI's), shuffle (Caramel's), or"
        " cheapest of the four for each size.",
        show_default="ring, or NCCL's tree where that takes less",
    ),
]
Window = Annotated[
    str | None,
    option(
        "--window",
        panel=NETWORK,
        rare=True,
        metavar="SIZE|off",
        help="HTTP/2's, between workers and servers: 28MB.",
        show_default="off",
    ),
]
ParseAlpha = Annotated[
    str | None,
    option(
        "--parse-alpha",
        panel=NETWORK,
        rare=True,
        metavar="X",
        help="Seconds a receiver spends on each byte: 1e-10.",
        show_default="0",
    ),
]
ParseBeta = Annotated[
    str | None,
    option(
        "--parse-beta",
        panel=NETWORK,
        rare=True,
        metavar="TIME",
        help="What a receiver spends on each message: 10us.",
        show_default="0s",
    ),
]
Budget = Annotated[
    str,
    option(
        "--budget",
        panel=PLANNING,
        rare=True,
        metavar="TIME",
        help="For how long search, or the exact planner, may go on.",
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
Timeline = Annotated[
    Path | None,
    option("--timeline", panel=OUTPUT, metavar="FILE", help="Write a trace of one step for Perfetto."),
]
Wide = Annotated[bool, option("--wide", panel=OUTPUT, help="All columns of the table, each explained.")]


def check_printed(json: bool, wide: bool) -> None:
    """Refuse two options that say what is printed, differently."""
    if json and wide:
        raise HocketError("--wide is for the table, and --json prints none; leave one of them out")


def num_workers(asked: int | None, architecture: str) -> int:
    """The workers of a plan or a simulation: as many as were asked for, or as is usual."""
    if asked is not None:
        return asked
    return _SERVED_WORKERS if architecture == "ps" else WORKERS_ASSUMED


def read_network(path: Path) -> NetworkFile:
    """The network of a file; keys that it has by mistake are named."""
    return load_network(path, note)


def check_fits(path: Path, file: NetworkFile, used: Collection[str]) -> None:
    """Warn where what was measured is far from those fits of a network's file that an answer uses."""
    from hocket.network.fit_quality import fit_warning

    warning = fit_warning(file, used)
    if warning is not None:
        warn(f"{path}: {warning}")


def window_bytes(window: str | None) -> float | None:
    """What ``--window`` asks for; 0.0: off, None: not given."""
    if window is None or window == "off":
        return None if window is None else 0.0
    try:
        return parse_bytes(window)
    except HocketError as error:
        raise HocketError(f"window: {error}, or off") from None


def check_servers(servers: int, architecture: str) -> None:
    """Refuse a number of servers where there are none to choose."""
    if architecture == "allreduce" and servers != 1:
        raise HocketError(f"{servers} servers: all-reduce has none to choose; leave them out")


def inputs(*paths: Path | None) -> list[Path]:
    """The files among ``paths`` that were given: no output may overwrite them."""
    return [path for path in paths if path is not None]


def check_beside_result(output: Path, *others: Path) -> None:
    """As :func:`hocket.document.check_writable`, of a command that prints its result: a file beside it."""
    from hocket.document import check_writable, is_standard_output

    if is_standard_output(output):
        raise HocketError(f"{output}: standard output is for the result; name a file")
    check_writable(output, *others)


def check_apart(one: Path, other: Path, what: str) -> None:
    """Refuse two outputs in one file, which would hold the last of them."""
    if one.resolve() == other.resolve():
        raise HocketError(f"{one}: is to be both {what}; name two files")


def fusion_bytes_of(fusion: str) -> int:
    """The buffer that ``--fusion`` asks for, in whole bytes."""
    return int(parse_bytes(fusion))
