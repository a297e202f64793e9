"""Torchrun's options, which ``hocket train`` passes on: their names, values and abbreviations."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Annotated, Any, NamedTuple

from hocket.cli.panels import PROCESSES, option
from hocket.errors import HocketError

_ASK_S = 120.0
_ASK = (
    "import json; from torch.distributed.run import get_args_parser as made;"
    "print(json.dumps([[a.option_strings, a.nargs == 0] for a in made()._actions if a.option_strings]))"
)


class Option(NamedTuple):
    """An option of torchrun: its names, the value's (none: a flag), and whether help lists it always."""

    names: tuple[str, ...]
    value: str
    about: str
    default: str = ""
    rare: bool = True


OPTIONS = (
    Option(("--nproc-per-node",), "N", "Processes on this machine; auto: as many as it can run.", "1", False),
    Option(("--nnodes",), "N", "Machines, or MIN:MAX of them.", "1", False),
    Option(("--node-rank",), "N", "Which of the machines this one is, from 0 on.", "0", False),
    Option(("--master-addr",), "HOST", "The first machine's address.", "127.0.0.1", False),
    Option(("--master-port",), "PORT", "Its port.", "29500", False),
    Option(("--rdzv-endpoint",), "HOST:PORT", "Where machines meet, in place of the three above.", "", False),
    Option(("--rdzv-backend",), "NAME", "By what they meet: static, c10d, etcd-v2.", "static", False),
    Option(("--rdzv-id",), "NAME", "A name of the job's own, where several meet."),
    Option(("--rdzv-conf",), "K=V,...", "More of how they meet: timeout=600."),
    Option(("--standalone",), "", "One machine, on a port that is free."),
    Option(("--max-restarts",), "N", "Restarts of all processes when one fails.", "0", False),
    Option(("--module", "-m"), "", "SCRIPT is a module: -m package.train.", "", False),
    Option(("--no-python",), "", "SCRIPT is a program, not Python."),
    Option(("--run-path",), "", "Run SCRIPT in the process itself, by runpy."),
    Option(("--log-dir",), "FOLDER", "For logs of the processes.", "a temporary one"),
    Option(("--redirects", "-r"), "STREAMS", "Write output to logs: 1 standard output, 2 error, 3 both."),
    Option(("--tee", "-t"), "STREAMS", "As --redirects, and show it too."),
    Option(("--local-ranks-filter",), "LIST", "Show what these local ranks print: 0,1."),
    Option(("--duplicate-stdout-filters",), "LIST", "Lines for a common log, by what is in them."),
    Option(("--duplicate-stderr-filters",), "LIST", "The same of standard error."),
    Option(("--monitor-interval",), "SECONDS", "Time between looks at the processes.", "0.1"),
    Option(("--start-method",), "NAME", "spawn, fork or forkserver.", "spawn"),
    Option(("--event-log-handler",), "NAME", "Where torchrun's events go.", "null"),
    Option(("--role",), "NAME", "The processes' role in logs.", "default"),
    Option(("--local-addr",), "HOST", "This machine's address.", "looked up"),
    Option(("--logs-specs",), "NAME", "Torchrun's plug-in for logs."),
    Option(("--numa-binding",), "NAME", "Bind processes to node, socket, exclusive or core-complex."),
    Option(("--signals-to-handle",), "LIST", "Signals that end the processes."),
    Option(("--shutdown-timeout",), "SECONDS", "Time for processes to end.", "30"),
    Option(("--virtual-local-rank",), "", "Every process sees LOCAL_RANK 0 and one device."),
)


def shown_options() -> dict[str, Any]:
    """Annotations by which help and shells know torchrun's options; the command is given no values."""
    return {
        each.names[0].strip("-").replace("-", "_"): Annotated[
            str if each.value else bool,
            option(
                *each.names,
                panel=PROCESSES,
                rare=each.rare,
                metavar=each.value or None,
                help=each.about,
                show_default=each.default or False,
                expose_value=False,
            ),
        ]
        for each in OPTIONS
    }


class Spelled(NamedTuple):
    """An option as torchrun takes it: an abbreviation of ours stands for a whole name there."""

    name: str
    takes_value: bool


def spelled(name: str) -> Spelled | None:
    """Torchrun's option ``name``, which may be abbreviated; None: it has none such.

    Torchrun itself takes no abbreviation of a name that it spells with dashes and with underscores.

    Raises
    ------
    HocketError
        For what may be short for several options.
    """
    known = {spelling: bool(each.value) for each in OPTIONS for spelling in each.names}
    return _matching(name, known) or _matching(name, _installed())


def _matching(name: str, known: dict[str, bool]) -> Spelled | None:
    dashed = f"--{name[2:].replace('_', '-')}" if name.startswith("--") else name[:2]  # -t3
    if dashed in known:
        return Spelled(name, known[dashed])
    meant = [each for each in known if name.startswith("--") and each.startswith(dashed)]
    if len(meant) > 1:
        raise HocketError(f"{name} is short for several of torchrun's options: {', '.join(meant)}; give one")
    return Spelled(meant[0], known[meant[0]]) if meant else None


@functools.cache
def _installed() -> dict[str, bool]:
    """The options of the torchrun that is installed, which may have more than :data:`OPTIONS`."""
    if find_spec("torch") is None:
        return {}
    asked = subprocess.run(
        [sys.executable, "-c", _ASK], stdout=subprocess.PIPE, timeout=_ASK_S, check=False, text=True
    )
    rows = json.loads(asked.stdout) if asked.returncode == 0 else []
    return {name.replace("_", "-"): not flag for names, flag in rows for name in names}
