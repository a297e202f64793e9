"""``hocket network``: the network between real processes, measured."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hocket.cli import options
from hocket.cli.option_groups import grouped
from hocket.cli.panels import OUTPUT, PROFILE, option
from hocket.cli.printing import note, print_json, progress
from hocket.cli.screen import Sheet, show
from hocket.network.fit_quality import FIT_NAMES, is_usable, measured_verdict
from hocket.text import counted, duration_text, scaled_text

if TYPE_CHECKING:
    from hocket.columns import Column
    from hocket.network import NetworkFile
    from hocket.network.file import Fit, Fits

_GIGABIT = 1.25e8  # a second, in bytes


@dataclass(frozen=True, kw_only=True)
class MeasuringEffort:
    """Options for how much is measured, and for how long."""

    largest: Annotated[
        str,
        option(
            panel=PROFILE,
            rare=True,
            metavar="SIZE",
            help="Largest message; all-reduces take up to half of it, concurrent ones an eighth.",
        ),
    ] = "32MB"
    repeats: Annotated[
        int,
        option(
            panel=PROFILE,
            rare=True,
            metavar="N",
            help="Timings of each size; the lower quartile counts.",
        ),
    ] = 10
    concurrent: Annotated[
        int, option(panel=PROFILE, rare=True, metavar="N", help="All-reduces at once, at most.")
    ] = 8
    timeout: Annotated[
        str, option(panel=PROFILE, rare=True, metavar="TIME", help="For how long measuring may go on: 120s.")
    ] = "120s"


@grouped
def measure(
    effort: MeasuringEffort,
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
    backend: Annotated[
        Literal["gloo", "nccl"],
        option(panel=PROFILE, help="nccl: between GPUs, one a process of torchrun's; ran on none so far."),
    ] = "gloo",
    json: options.Json = False,
) -> None:
    """Time transfers and all-reduces between processes over gloo or NCCL, and fit what --network takes.

    Started by torchrun on one or several machines, it measures between torchrun's processes. Between two at
    1 Gbit/s it takes about a minute, and never longer than --timeout.
    """
    from hocket.network import parse_bytes, parse_duration, save_network
    from hocket.network.file import network_document
    from hocket.profiler import launched, measure_network

    place = launched()
    first = place is None or place.rank == 0
    if output is not None and first:
        options.check_beside_result(output)

    def say_how_long(sent_bytes: float) -> None:
        rounds, sent = effort.repeats + 1, scaled_text(sent_bytes, "B")
        at_least = duration_text(rounds * sent_bytes / _GIGABIT)
        if first:
            note(
                f"measuring: {rounds} rounds of {sent} a worker, so at least {at_least} at 1 Gbit/s; fewer"
                f" rounds where these would take over half of --timeout {effort.timeout}"
            )

    with progress("measuring the network") if first else contextlib.nullcontext():
        measured = measure_network(
            workers=workers,
            largest_bytes=int(parse_bytes(effort.largest)),
            repeats=effort.repeats,
            concurrent=effort.concurrent,
            timeout_s=parse_duration(effort.timeout),
            backend=backend,
            begins=say_how_long,
        )
    if measured is None:
        return
    if output is not None:
        save_network(measured, output)
    if json:
        print_json(network_document(measured))
        note(measured_verdict(measured))
    else:
        _show(measured, output, effort, launched=place is not None)
    if timed := _timings_within(measured, effort):
        fewer = f"each size was timed {counted(timed, 'time')}, not {effort.repeats} times"
        limit = f"--timeout {effort.timeout}"
        note(f"{fewer}: on this link more would take over half of {limit}")
    assert measured.fits is not None
    for name in measured.fits.__struct_fields__:
        fit = getattr(measured.fits, name)
        if fit is not None and fit.note:
            note(f"{FIT_NAMES[name]}: {fit.note}")


def _timings_within(measured: NetworkFile, effort: MeasuringEffort) -> int:
    """The timings of each size that there was time for, where these are fewer than were asked for; else 0."""
    timed = None if measured.host is None else measured.host.repeats
    return timed if timed is not None and timed < effort.repeats else 0


def _show(measured: NetworkFile, output: Path | None, effort: MeasuringEffort, *, launched: bool) -> None:
    """Print whether to plan by what was measured, then the fits, then a command that uses the file.

    ``launched``: whether a launcher started the processes, so that each machine has a command to repeat.
    """
    from hocket.network import parse_duration

    host = measured.host
    assert host is not None
    path = "network.json" if output is None else str(output)
    if output is not None and is_usable(measured):
        following = shlex.join(["hocket", "predict", "step.json", "--network", path])
    else:
        more = ["--repeats", "50", "--timeout", "600s"]
        if timed := _timings_within(measured, effort):
            longer_s = parse_duration(effort.timeout) * effort.repeats / timed
            more = ["--repeats", str(effort.repeats), "--timeout", f"{longer_s:.0f}s"]
        options = shlex.join(["-o", path, *([] if output is None else more)])
        again = "the same command on every machine, with" if launched else "hocket network measure"
        following = f"{again} {options}"
    show(
        [measured_verdict(measured)],
        assumptions=f"{host.where}, {host.backend}, torch {host.torch}, lower quartile of each size's times",
        sheets=[Sheet("", measured_columns(measured))],
        following=following,
    )


def _half_rows(fits: Fits) -> list[tuple[str, Fit, dict[str, str]]]:
    """The fits of all-gathers, reduce-scatters and all-to-alls, with their figures."""
    named = [("gather", fits.gather), ("scatter", fits.scatter), ("exchange", fits.exchange)]
    return [
        (name, fit, {"a": duration_text(fit.a_s), "b, a byte": duration_text(fit.b_s_per_byte)})
        for name, fit in named
        if fit is not None
    ]


def measured_columns(measured: NetworkFile) -> list[Column]:
    """The columns of what was fitted, with the points' distance from the fits."""
    from hocket.columns import text_column

    assert measured.allreduce is not None
    assert measured.fits is not None
    fits, reduced = measured.fits, measured.allreduce
    rows = []
    for name, fit, figures in (
        (
            "transfer",
            fits.transfer,
            {
                "bandwidth": scaled_text(measured.bandwidth_bps, "bit/s"),
                "startup": duration_text(measured.startup_s),
            },
        ),
        (
            "parse",
            fits.parse,
            {
                "a byte": duration_text(measured.parse_s_per_byte),
                "a message": duration_text(measured.parse_s),
            },
        ),
        (
            "allreduce",
            fits.allreduce,
            {"a": duration_text(reduced.a_s), "b, a byte": duration_text(reduced.b_s_per_byte)},
        ),
        ("contention", fits.contention, {"eta, a byte": duration_text(reduced.eta_s_per_byte)}),
        *_half_rows(fits),
    ):
        errors = (str(len(fit.points)), f"{fit.rms_error:.1%}", f"{fit.max_error:.1%}")
        for k, (of, value) in enumerate(figures.items()):
            rows.append((FIT_NAMES[name], of, value, *errors) if k == 0 else ("", of, value, "", "", ""))
    headings = {
        "Fit": "",
        "Of": "",
        "Value": "",
        "Points": "",
        "Rms error": "Root of the mean square of errors, each relative to its time.",
        "Largest": "The largest of those errors.",
    }
    cells = zip(headings.items(), zip(*rows, strict=True), strict=True)
    return [text_column(heading, texts, meaning) for (heading, meaning), texts in cells]
