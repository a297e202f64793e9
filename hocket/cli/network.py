"""``hocket network``: the network between real processes, measured."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hocket.cli import options
from hocket.cli.commands import App
from hocket.cli.output import note, print_json, print_table, progress
from hocket.cli.panels import OUTPUT, PROFILE, option

if TYPE_CHECKING:
    from hocket.network import NetworkFile

app = App(help="Measure the network that steps are planned for.")


@app.callback()
def _network() -> None:
    """Keep ``measure`` a command of its own: typer calls a group's only command without its name."""


@app.command()
def measure(
    output: Annotated[
        Path | None,
        option("-o", "--output", panel=OUTPUT, metavar="FILE", help="The hocket.network/1 file to write."),
    ] = None,
    workers: Annotated[
        int | None,
        option(
            panel=PROFILE,
            metavar="N",
            help="Processes to start here, on loopback; else 2. Under torchrun: its own.",
        ),
    ] = None,
    largest: Annotated[
        str,
        option(
            panel=PROFILE,
            rare=True,
            metavar="SIZE",
            help="Largest message; all-reduces take up to half of it, concurrent ones an eighth.",
        ),
    ] = "32MB",
    repeats: Annotated[
        int,
        option(
            panel=PROFILE,
            rare=True,
            metavar="N",
            help="How often each size is timed; the lower quartile counts.",
        ),
    ] = 10,
    concurrent: Annotated[
        int, option(panel=PROFILE, rare=True, metavar="N", help="All-reduces at once, at most.")
    ] = 8,
    timeout: Annotated[
        str, option(panel=PROFILE, rare=True, metavar="TIME", help="For how long measuring may go on: 120s.")
    ] = "120s",
    json: options.Json = False,
) -> None:
    """Time transfers and all-reduces between processes, and fit what --network takes.

    Started by torchrun on one or several machines, it measures between torchrun's processes.
    """
    from hocket.network import parse_bytes, parse_duration, save_network
    from hocket.network.file import network_document
    from hocket.profiler import launched, measure_network

    place = launched()
    first = place is None or place.rank == 0
    if output is not None and first:
        options.check_beside_result(output)
    with progress("measuring the network") if first else contextlib.nullcontext():
        measured = measure_network(
            workers=workers,
            largest_bytes=int(parse_bytes(largest)),
            repeats=repeats,
            concurrent=concurrent,
            timeout_s=parse_duration(timeout),
        )
    if measured is None:
        return
    if output is not None:
        save_network(measured, output)
    if json:
        print_json(network_document(measured))
    else:
        print_table(measured_table(measured))
    if measured.host is not None and measured.host.repeats is not None and measured.host.repeats < repeats:
        fewer = f"each size was timed {measured.host.repeats} times, not {repeats}"
        note(f"{fewer}: on this link more would take over half of --timeout {timeout}; raise it for more")
    assert measured.fits is not None
    for name in measured.fits.__struct_fields__:
        if held := getattr(measured.fits, name).note:
            note(f"{name}: {held}")
    if output is not None:
        note(f"{output}: give it to predict, plan, simulate and tune with --network")


def measured_table(measured: NetworkFile) -> Any:
    """A rich table of what was fitted, and how far the points are from the fits."""
    from rich.table import Table

    assert measured.allreduce is not None
    assert measured.host is not None
    assert measured.fits is not None
    host, fits, reduced = measured.host, measured.fits, measured.allreduce
    table = Table(
        title=f"{host.workers} workers on {host.where}, {host.backend}, torch {host.torch}", box=None
    )
    for heading in ("fit", "of", "value", "unit", "points", "rms error", "largest"):
        table.add_column(heading, justify="left" if heading in ("fit", "of", "unit") else "right")
    bandwidth = ("bandwidth", measured.bandwidth_bps / 1e9, "Gbit/s")
    startup = ("startup", measured.startup_s * 1e6, "us")
    message = ("a message", measured.parse_s * 1e6, "us")
    byte = ("a byte", measured.parse_s_per_byte * 1e9, "ns")
    a, b = ("a", reduced.a_s * 1e6, "us"), ("b, a byte", reduced.b_s_per_byte * 1e9, "ns")
    eta = ("eta, a byte", reduced.eta_s_per_byte * 1e9, "ns")
    for name, fit, figures in (
        ("transfer", fits.transfer, (bandwidth, startup)),
        ("parse", fits.parse, (byte, message)),
        ("allreduce", fits.allreduce, (a, b)),
        ("contention", fits.contention, (eta,)),
    ):
        first = [name, str(len(fit.points)), f"{fit.rms_error:.1%}", f"{fit.max_error:.1%}"]
        for of, value, unit in figures:
            fit_name, *errors = first
            table.add_row(fit_name, of, f"{value:.4g}", unit, *errors)
            first = [""] * 4
    return table
