"""Options of ``hocket train`` that are ours; torchrun's are in :mod:`hocket.cli.torchrun_options`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hocket.cli.name_options import (
    complete_policy,
    complete_training_policy,
    lowercase,
    lowercase_unless_file,
)
from hocket.cli.panels import GENERAL, OUTPUT, PLANNING, SERVERS, option


def _print_token(asked: bool) -> None:
    if asked:
        from hocket.document import write_output
        from hocket.launch.credentials import new_credentials

        write_output(f"{new_credentials().text}\n".encode())
        raise typer.Exit


Architecture = Annotated[
    Literal["allreduce", "ps"],
    option("--architecture", panel=PLANNING, help="The exchange of gradients."),
]
NewToken = Annotated[
    bool,
    option(
        "--new-token",
        panel=SERVERS,
        is_eager=True,
        callback=_print_token,
        help="Print a token for HOCKET_TOKEN, which ranks started elsewhere share, and end.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ScriptOptions:
    """Options for what every process is told: the plan, the network, and what to record and to say."""

    plan: Annotated[
        str | None,
        option(
            "--plan",
            panel=PLANNING,
            metavar="FILE|NAME",
            help="A hocket.plan/1 file, or a policy: ddp, caramel.",
            show_default="auto, the fastest of those that are tried",
            callback=lowercase_unless_file,
            autocompletion=complete_training_policy,
        ),
    ] = None
    network_file: Annotated[
        Path | None,
        option(
            "--network",
            panel=PLANNING,
            metavar="FILE",
            help="A hocket.network/1 file.",
            show_default="measured in the first steps",
        ),
    ] = None
    forget: Annotated[
        bool,
        option(
            "--forget",
            panel=PLANNING,
            help="Choose a plan anew, in place of the one that an earlier run kept.",
        ),
    ] = False
    timeline: Annotated[
        Path | None,
        option(
            "--timeline",
            panel=OUTPUT,
            metavar="FILE",
            help="Write the last 8 steps, for Perfetto and compare.",
        ),
    ] = None
    verbose: Annotated[
        bool,
        option(
            *("--verbose", "-v"),
            panel=GENERAL,
            help="Say what the first steps are for, why a plan stays, and where errors come from.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """Options for training with parameter servers."""

    servers: Annotated[
        int | None,
        option("--servers", panel=SERVERS, metavar="N", help="Server processes, here.", show_default="1"),
    ] = None
    workers: Annotated[
        int | None,
        option(
            "--workers",
            panel=SERVERS,
            metavar="N",
            help="Worker processes, here: real ones, so as many as you ask for.",
            show_default="1",
        ),
    ] = None
    mode: Annotated[
        Literal["sync", "async", "inference"] | None,
        option("--mode", panel=SERVERS, help="inference: workers only pull.", show_default="sync"),
    ] = None
    barrier: Annotated[
        Literal["step", "parameter"] | None,
        option(
            "--barrier",
            panel=SERVERS,
            rare=True,
            help="The updates that a pull waits for.",
            show_default="the policy's",
        ),
    ] = None
    staleness: Annotated[
        int | None,
        option(
            "--staleness",
            panel=SERVERS,
            rare=True,
            metavar="N",
            help="async: how many steps a worker may be ahead of another one.",
        ),
    ] = None
    backup: Annotated[
        int | None,
        option(
            "--backup",
            panel=SERVERS,
            rare=True,
            metavar="N",
            help="sync: how many of the workers a step does not wait for.",
            show_default="0",
        ),
    ] = None
    policy: Annotated[
        str | None,
        option(
            "--policy",
            panel=SERVERS,
            metavar="NAME",
            help="As --plan NAME: tac after some profiled steps, random in each anew.",
            callback=lowercase,
            autocompletion=complete_policy,
        ),
    ] = None
    seed: Annotated[
        int | None,
        option(
            "--seed",
            panel=SERVERS,
            rare=True,
            metavar="N",
            min=0,
            max=2**63 - 1,
            help="Decides orders that are drawn.",
            show_default="0",
        ),
    ] = None
    transport: Annotated[
        Literal["gloo", "grpc"] | None,
        option(
            "--transport", panel=SERVERS, rare=True, help="The transport of tensors.", show_default="gloo"
        ),
    ] = None
    timeout: Annotated[
        str | None,
        option(
            "--timeout",
            panel=SERVERS,
            rare=True,
            metavar="TIME",
            help="No wait takes longer.",
            show_default="1800s",
        ),
    ] = None
    restarts: Annotated[
        int | None,
        option(
            "--restarts",
            panel=SERVERS,
            rare=True,
            metavar="N",
            min=0,
            help="async: how often a worker that fails is started again.",
            show_default="0",
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        option(
            "--checkpoint",
            panel=SERVERS,
            rare=True,
            metavar="FOLDER",
            help="Servers keep what they apply there, and go on from it.",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """The options that were given, by their names."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}
