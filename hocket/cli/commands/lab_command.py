"""``hocket lab``: an emulated cluster on this machine, to run real training on."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli import options
from hocket.cli.panels import GENERAL, option
from hocket.cli.printing import note, print_json, print_table
from hocket.errors import HocketError
from hocket.text import listed

if TYPE_CHECKING:
    from hocket.lab import Lab

Name = Annotated[str, option(panel=GENERAL, metavar="NAME", help="Which lab; there can be several.")]


def up(
    nodes: Annotated[int, option(panel=GENERAL, metavar="N", help="Nodes, 2 to 250.")] = 2,
    rate: Annotated[
        str, option(panel=GENERAL, metavar="RATE", help="Of each node's link, each way: 250Mbit/s or 1gbit.")
    ] = "1gbit",
    name: Name = "hocket",
    tso: Annotated[
        str | None,
        option(
            panel=GENERAL,
            metavar="SIZE",
            help="The most TCP hands to a link at once. 64kB, as on machines with network cards, costs the"
            " processors least: for training. The default shares a link more evenly.",
            show_default="0.25 ms at RATE",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Make a lab, which stays until 'hocket lab down'."""
    from hocket.lab import Lab
    from hocket.network import parse_bandwidth, parse_bytes

    tso_bytes = None if tso is None else parse_bytes(tso)
    lab = Lab(nodes=nodes, rate_bps=parse_bandwidth(rate), name=name, tso_bytes=tso_bytes)
    lab.up()
    if json:
        print_json(lab_document(lab))
    else:
        print_table(lab_table(lab))


def down(
    name: Name = "hocket",
    force: Annotated[
        bool, option("--force", panel=GENERAL, help="Also where a cluster's manager uses it.")
    ] = False,
) -> None:
    """End what runs in a lab, and remove it; also what is left of one whose making was killed."""
    from hocket.lab import remove
    from hocket.lab.lab_users import users_of

    if (users := users_of(name)) and not force:
        pids = listed([str(pid) for pid in users])
        raise HocketError(
            f"lab '{name}' is used by a cluster's manager (process {pids}); stop that first, kill {users[0]},"
            " or give --force: its ranks are ended, and its jobs wait until the lab is up again"
        )
    note(f"lab '{name}' is removed" if remove(name) else f"there is no lab '{name}', nothing to remove")


def status(json: options.Json = False) -> None:
    """Show the labs of this machine, their nodes, and the processes in them."""
    from hocket.lab import labs, names

    whole = {lab.name: lab for lab in labs()}
    parts = [name for name in names() if name not in whole]
    if json:
        documents = [lab_document(lab) for lab in whole.values()]
        documents += [{"name": name, "state": "not whole"} for name in parts]
        print_json({"labs": documents})
        return
    for lab in whole.values():
        print_table(lab_table(lab))
    for name in parts:
        note(f"lab '{name}' is not whole; remove what is left: hocket lab down --name {name}")
    if not whole and not parts:
        note("there is no lab; make one with 'hocket lab up'")


def execute(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="NODE -- COMMAND...", help="With --all, '-- COMMAND...' alone."),
    ],
    everywhere: Annotated[bool, option("--all", panel=GENERAL, help="One rank on every node.")] = False,
    name: Name = "hocket",
    grace: Annotated[
        str | None,
        option(
            panel=GENERAL,
            rare=True,
            metavar="TIME",
            help="Time for ranks to end by themselves once one has failed.",
            show_default="10s",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        option(
            panel=GENERAL,
            rare=True,
            metavar="TIME",
            help="For how long ranks may run.",
            show_default="for ever",
        ),
    ] = None,
    own_processors: Annotated[
        bool,
        option(
            "--own-processors",
            panel=GENERAL,
            help="An equal part of this machine's processors for each node alone.",
        ),
    ] = False,
) -> None:
    """Run a command in a node, or with --all one rank of it on every node, as torchrun would start them.

    The status is the command's own, or that of the first rank that failed.
    """
    from hocket.lab import Lab
    from hocket.network import parse_duration

    lab = Lab.find(name)
    if not everywhere:
        if grace is not None or timeout is not None:
            raise HocketError("--grace and --timeout are about ranks; give them with --all")
        _become(lab, *arguments, own_processors=own_processors)
    results = lab.run_all(
        arguments,
        timeout_s=None if timeout is None else parse_duration(timeout),
        grace_s=10.0 if grace is None else parse_duration(grace),
        output="prefixed",
        own_processors=own_processors,
    )
    failed = [result for result in results if result.returncode != 0]
    if failed:
        # A rank that was killed is why the others failed, also where both are seen at once.
        first = min(failed, key=lambda result: (result.duration_s, result.returncode > 0))
        code = first.returncode if first.returncode > 0 else 128 - first.returncode
        note(f"{first.node.name} failed first, with status {code}")
        raise typer.Exit(code)


def _become(lab: Lab, name: str, *command: str, own_processors: bool) -> None:
    """Go on as ``command`` in the node ``name``: terminal, signals and status are its own."""
    node = lab.node(name)
    argv, environment = lab.command(node, command)
    if own_processors:
        os.sched_setaffinity(0, lab.processors()[node.index])
    signal.signal(
        signal.SIGPIPE, signal.SIG_DFL
    )  # Python ignores it, and what is executed would inherit that
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(argv[0], argv, environment)


def lab_document(lab: Lab) -> dict[str, Any]:
    """A lab as ``--json`` prints it."""
    import dataclasses

    pids = lab.pids()
    nodes = [{**dataclasses.asdict(node), "pids": pids[node.name]} for node in lab.nodes]
    return {"name": lab.name, "state": "up", "rate_bps": lab.rate_bps, "nodes": nodes}


def lab_table(lab: Lab) -> Any:
    """A rich table of a lab's nodes and the processes in them."""
    from hocket.columns import terminal_table, text_column

    rate = f"{lab.rate_bps / 1e9:g} Gbit/s" if lab.rate_bps >= 1e9 else f"{lab.rate_bps / 1e6:g} Mbit/s"
    pids, nodes = lab.pids(), lab.nodes
    columns = [
        text_column("node", [node.name for node in nodes]),
        text_column("address", [node.address for node in nodes]),
        text_column("interface", [node.interface for node in nodes]),
        text_column("namespace", [node.namespace for node in nodes]),
        text_column("processes", [" ".join(map(str, pids[node.name])) or "none" for node in nodes]),
    ]
    return terminal_table(columns, title=f"lab {lab.name}: {len(nodes)} nodes, {rate} each way", spaced=True)
