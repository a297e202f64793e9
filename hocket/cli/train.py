"""``hocket train``: torchrun, with what ``hocket.distribute`` is to know in the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperCommand

from hocket.cli import options
from hocket.errors import HocketError
from hocket.logs import VARIABLE

if TYPE_CHECKING:
    from hocket.graph import Plan
    from hocket.planner import Barrier

_OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_SERVING = (
    *("servers", "workers", "mode", "barrier", "staleness", "backup", "policy", "seed", "transport"),
    *("timeout", "restarts", "checkpoint"),
)
_OURS = frozenset(
    {
        "--plan",
        "--network",
        "--timeline",
        "--new-token",
        "--architecture",
        "--help",
        "-h",
        "--verbose",
        "-v",
        *(f"--{name}" for name in _SERVING),
    }
)
TORCHRUN_FLAGS = frozenset(
    {
        *("-h", "--help", "-m", "--module", "--standalone", "--no-python", "--no_python"),
        *("--run-path", "--run_path", "--virtual-local-rank", "--virtual_local_rank"),
    }
)
"""Torchrun's options that take no value: every other one does, which tells its value from SCRIPT."""
_NAMES_NO_FILE = frozenset({"-m", "--module", "--no-python", "--no_python"})
_FLAGS = TORCHRUN_FLAGS | {"-v", "--verbose", "--new-token"}
_SHARES_INTERPRETER = frozenset({"--run-path", "--run_path"})


def _print_token(asked: bool) -> None:
    if asked:
        from hocket.document import write_output
        from hocket.launch.credentials import new_credentials

        write_output(f"{new_credentials().text}\n".encode())
        raise typer.Exit


class Train(TyperCommand):
    """Leaves to torchrun what is torchrun's, wherever our own options stand among it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse our options alone; the rest, SCRIPT and its arguments included, stays as it was given."""
        named, script = _split(args)
        ours = [part for option in named if option[0].partition("=")[0] in _OURS for part in option]
        theirs = [part for option in named if option[0].partition("=")[0] not in _OURS for part in option]
        # Without SCRIPT, the last of our options may lack its value: nothing stands behind it then.
        return super().parse_args(ctx, [*ours, "--", *theirs, *script] if script else ours)


def train(
    command: Annotated[
        list[str], typer.Argument(metavar="SCRIPT", help="What every process runs, and its arguments.")
    ],
    plan: Annotated[
        str | None,
        typer.Option(metavar="FILE|NAME", help="A hocket.plan/1 file, or a policy; else what is fastest."),
    ] = None,
    network_file: Annotated[
        Path | None,
        typer.Option("--network", metavar="FILE", help="A hocket.network/1 file; else it is measured."),
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the last 8 steps, for Perfetto and compare.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say what the first steps are for, and why a plan stays.")
    ] = False,
    architecture: Annotated[
        Literal["allreduce", "ps"],
        typer.Option(help="How gradients are exchanged; what follows is for ps."),
    ] = "allreduce",
    servers: Annotated[int | None, typer.Option(help="Parameter servers, 1 by default.")] = None,
    workers: Annotated[int | None, typer.Option(help="Workers, 1 by default.")] = None,
    mode: Annotated[
        Literal["sync", "async", "inference"] | None,
        typer.Option(help="inference: workers only pull; else sync."),
    ] = None,
    barrier: options.Barrier = None,
    staleness: Annotated[
        int | None, typer.Option(help="async: how many steps a worker may be ahead of another one.")
    ] = None,
    backup: Annotated[
        int | None, typer.Option(help="sync: how many of the workers a step does not wait for.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="As --plan NAME: tac after some profiled steps, random in each anew, ..."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Decides orders that are drawn.")
    ] = None,
    transport: Annotated[
        Literal["gloo", "grpc"] | None, typer.Option(help="What tensors travel by; else gloo.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(help="No wait takes longer; 1800s by default.")] = None,
    restarts: Annotated[
        int | None,
        typer.Option(min=0, help="async: how often a worker that fails is started again, else never."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Servers keep what they apply there, and go on from it."),
    ] = None,
    new_token: Annotated[
        bool,
        typer.Option(
            "--new-token",
            is_eager=True,
            callback=_print_token,
            help="Print a token for HOCKET_TOKEN, which ranks started elsewhere share, and end.",
        ),
    ] = False,
) -> None:
    """Train with hocket.distribute on several processes: torchrun, told what to plan by and what to record.

    Every option of torchrun may stand before SCRIPT, such as --nproc-per-node 2; its status is ours. With
    --architecture ps, servers and workers are started on this machine; under RANK and WORLD_SIZE (hocket lab
    exec --all) each rank becomes one of them, servers first.
    """
    from hocket.document import check_writable
    from hocket.launch.processes import SCRIPT

    named, script = _split(command)
    flags = {option[0] for option in named}
    given = {
        **{"servers": servers, "workers": workers, "mode": mode, "barrier": barrier, "staleness": staleness},
        **{"backup": backup, "policy": policy, "seed": seed, "transport": transport, "timeout": timeout},
        **{"restarts": restarts, "checkpoint": checkpoint},
    }
    given = {name: value for name, value in given.items() if value is not None}
    if architecture == "allreduce" and given:
        raise HocketError(
            f"--{next(iter(given))} is for parameter servers; add --architecture ps, or leave it out"
        )
    if architecture == "ps" and flags:
        raise HocketError(f"{named[0][0]} is torchrun's, which does not start servers; leave it out")
    names_file = flags.isdisjoint(_NAMES_NO_FILE)
    if names_file and not Path(script[0]).is_file():
        raise HocketError(f"{script[0]}: there is no such SCRIPT; options of its own stand behind it")
    if find_spec("torch") is None:
        raise HocketError("torch is not installed; pip install 'hocket[torch]'")
    # By default torchrun's processes meet in a store that outlives them: those that are started again would
    # look for each other where the ones before them were.
    told = {_OWN_STORE: os.environ.get(_OWN_STORE, "1")}
    if policy is not None and plan is not None:
        raise HocketError(f"--policy {policy} and --plan {plan} both say how to plan; leave one out")
    if verbose:
        told[VARIABLE] = "info"
    wanted = policy if plan is None else plan
    loaded: Plan | None = None
    if wanted is not None:
        loaded, by_policy = _resolved(wanted, architecture)
        told["HOCKET_PLAN"] = by_policy if loaded is None else str(Path(wanted).absolute())
    if network_file is not None:
        options.read_network(network_file)
        told["HOCKET_NETWORK"] = str(network_file.absolute())
    if timeline is not None:
        inputs = options.inputs(network_file, None if plan is None else Path(plan), Path(script[0]))
        check_writable(timeline, *inputs)
        told["HOCKET_TIMELINE"] = str(timeline.absolute())
    if architecture == "ps":
        given["barrier"] = _barrier(barrier, loaded, told.get("HOCKET_PLAN"))
        _serve(script, told, given)
    if names_file and flags.isdisjoint(_SHARES_INTERPRETER):
        # However it ends is heard of, so that other ranks say of a failed one that it is gone, not done.
        command = [*(part for option in named for part in option), *SCRIPT, *script]
    # Torchrun takes our place: its status and the signals it gets need no passing on. -P: as its own command
    # does, it does not import from the folder that it is started in.
    python = sys.executable
    os.execve(python, [python, "-P", "-m", "torch.distributed.run", *command], {**os.environ, **told})


def _serve(script: list[str], told: dict[str, str], given: dict[str, Any]) -> NoReturn:
    """Train with parameter servers, by the options that were ``given``."""
    from hocket.cli.train_servers import train_with_servers
    from hocket.launch import Rule
    from hocket.network import parse_duration

    if given.get("transport") == "grpc" and find_spec("grpc") is None:
        raise HocketError("--transport grpc needs grpcio; pip install 'hocket[grpc]'")
    rule = Rule(
        mode=given.get("mode", "sync"),
        workers=given.get("workers", 1),
        barrier=given["barrier"],
        staleness=given.get("staleness"),
        backup=given.get("backup", 0),
    )
    if given.get("restarts") and rule.mode == "sync":
        raise HocketError(f"--restarts {given['restarts']} is for mode 'async'; leave it out")
    status = train_with_servers(
        script,
        told,
        servers=given.get("servers", 1),
        rule=rule,
        restarts=given.get("restarts", 0),
        seed=given.get("seed", 0),
        transport=given.get("transport", "gloo"),
        timeout_s=parse_duration(given.get("timeout", "1800s")),
        checkpoint=str(given["checkpoint"].absolute()) if "checkpoint" in given else "",
    )
    raise typer.Exit(status)


def _barrier(asked: Barrier | None, plan: Plan | None, policy: str | None) -> Barrier:
    """What pulls wait for: a policy's own barrier can be replaced, a plan was made for one."""
    if plan is None:
        return asked or ("parameter" if policy == "p3" else "step")
    if asked not in (None, plan.barrier):
        raise HocketError(
            f"plan '{plan.policy}' has barrier '{plan.barrier}', not '{asked}'; leave --barrier out"
        )
    return plan.barrier


def _resolved(plan: str, architecture: str) -> tuple[Plan | None, str]:
    """The plan of a file, or a policy's name."""
    from hocket.tuner.serving import resolved_server_plan
    from hocket.tuner.training import resolved_plan

    return resolved_plan(plan) if architecture == "allreduce" else resolved_server_plan(plan)


def _split(arguments: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """The options before SCRIPT, each with its value, and SCRIPT with all that follows it."""
    found: list[list[str]] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest[0]
        if option == "--":
            return found, rest[1:]
        holds_value = "=" in option or (len(option) > 2 and not option.startswith("--"))  # -t3
        taken = 1 if holds_value or option in _FLAGS else 2
        found.append(rest[:taken])
        rest = rest[taken:]
    return found, rest
