"""``hocket train``: torchrun, with what ``hocket.distribute`` is to know in the environment."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hocket.cli import options, torchrun_options, train_options
from hocket.cli.command_help import Command
from hocket.cli.network_options import check_fits, read_network
from hocket.cli.option_groups import grouped
from hocket.cli.printing import note, print_end
from hocket.errors import HocketError
from hocket.logs import VARIABLE

if TYPE_CHECKING:
    from hocket.graph import Plan
    from hocket.planner import Barrier

_TORCHRUN = str(Path(__file__).parents[2] / "runtime" / "torchrun_launcher.py")
_OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_SERVING = tuple(field.name for field in fields(train_options.ServingOptions))
_FLAGS = frozenset(
    {"--help", "-h", "--help-all", "--verbose", "-v", "--quiet", "-q", "--new-token", "--forget"}
)
_OURS = _FLAGS | {"--plan", "--network", "--timeline", "--architecture", *(f"--{name}" for name in _SERVING)}
_ONE_MACHINE = (
    "all processes are on this machine, where networks are hardly waited for: there is little to gain here"
    " from another plan than DDP's; between machines there may be more"
)
_NAMES_NO_FILE = frozenset({"-m", "--module", "--no-python", "--no_python"})
_SHARES_INTERPRETER = frozenset({"--run-path", "--run_path"})


class Train(Command):
    """Leaves to torchrun what is torchrun's, wherever our own options stand among it."""

    more_options = torchrun_options.shown_options()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse our options alone; the rest, SCRIPT and its arguments included, stays as it was given."""
        try:
            named, script = _split(args)
        except HocketError:
            if not ctx.resilient_parsing:  # a shell completes a line that is not whole
                raise
            named, script = [], []
        ours = [part for option in named if option[0].partition("=")[0] in _OURS for part in option]
        theirs = [part for option in named if option[0].partition("=")[0] not in _OURS for part in option]
        # Without SCRIPT, the last of our options may lack its value: nothing stands behind it then.
        return super().parse_args(ctx, [*ours, "--", *theirs, *script] if script else ours)


@grouped
def train(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT", help="The script that every process runs, and its arguments behind it."
        ),
    ],
    asked: train_options.ScriptOptions,
    serving: train_options.ServingOptions,
    architecture: train_options.Architecture = "allreduce",
    new_token: train_options.NewToken = False,
) -> None:
    """Train with hocket.distribute on several processes: torchrun, told what to plan by and what to record.

    Options stand before SCRIPT, ours and torchrun's, whose names may be abbreviated (--nproc 2). With
    --architecture ps, servers and workers are started on this machine instead; under RANK and WORLD_SIZE
    (hocket lab exec --all) each rank becomes one of them, servers first.
    """
    from hocket.launch.processes import SCRIPT

    named, script = _split(command)
    flags = {option[0] for option in named}
    given = serving.given()
    _check(named, script, architecture, given)
    wanted = _wanted(asked.plan, serving.policy)
    loaded, planned = (None, {}) if wanted is None else _planned(wanted, architecture)
    told = {**_told(asked, architecture, script), **planned}
    if architecture == "ps":
        given["barrier"] = _barrier(serving.barrier, loaded, told.get("HOCKET_PLAN"))
        _serve(script, told, given)
    if _on_one_machine(named):
        note(_ONE_MACHINE)
    if flags.isdisjoint(_NAMES_NO_FILE | _SHARES_INTERPRETER):
        # However it ends is heard of, so that other ranks say of a failed one that it is gone, not done.
        command = [*(part for option in named for part in option), *SCRIPT, *script]
        files = (("--plan", wanted), ("--network", asked.network_file), ("--timeline", asked.timeline))
        told["HOCKET_AWAITED"] = " ".join(name for name, value in files if value is not None)
    # Torchrun takes our place: its status and the signals it gets need no passing on. -P: as its own command
    # does, it does not import from the folder that it is started in.
    python = sys.executable
    print_end()
    os.execve(python, [python, "-P", _TORCHRUN, *command], {**os.environ, **told})


def _check(
    named: Sequence[Sequence[str]], script: Sequence[str], architecture: str, serving: Mapping[str, Any]
) -> None:
    """Refuse options of one exchange that are given for the other, and what is no script."""
    if architecture == "allreduce" and serving:
        raise HocketError(
            f"--{next(iter(serving))} is for parameter servers; add --architecture ps, or leave it out"
        )
    if architecture == "ps" and named:
        raise HocketError(f"{named[0][0]} is torchrun's, which does not start servers; leave it out")
    names_file = _NAMES_NO_FILE.isdisjoint(option[0] for option in named)
    if names_file and not Path(script[0]).is_file():
        raise HocketError(f"{script[0]}: there is no such SCRIPT; options of its own stand behind it")
    if names_file and script[0].endswith((".json", ".json.zst", ".json.gz")):
        raise HocketError(f"{script[0]}: is no script; give a file that Python runs, and a plan as --plan")
    if find_spec("torch") is None:
        raise HocketError("torch is not installed; pip install '.[torch]' in a clone of Hocket")


def _wanted(plan: str | None, policy: str | None) -> str | None:
    """The plan's file, or the policy, that ``--plan`` or ``--policy`` asks for."""
    if policy is not None and plan is not None:
        raise HocketError(f"--policy {policy} and --plan {plan} both say how to plan; leave one out")
    return policy if plan is None else plan


def _planned(wanted: str, architecture: str) -> tuple[Plan | None, dict[str, str]]:
    """The plan of a file, if it is one, and the variable that tells processes of it or of the policy."""
    loaded, by_policy = _resolved(wanted, architecture)
    return loaded, {"HOCKET_PLAN": by_policy if loaded is None else str(Path(wanted).absolute())}


def _told(asked: train_options.ScriptOptions, architecture: str, script: Sequence[str]) -> dict[str, str]:
    """The variables that tell processes of everything but the plan."""
    from hocket.network.fit_quality import OF_ALL_REDUCE, OF_SERVERS

    # By default torchrun's processes meet in a store that outlives them: those that are started again would
    # look for each other where the ones before them were.
    told = {_OWN_STORE: os.environ.get(_OWN_STORE, "1")}
    if asked.verbose:
        told[VARIABLE] = "info"
    if asked.forget:
        if architecture == "ps":
            raise HocketError("--forget is for plans that are tried, as with servers none are; leave it out")
        told["HOCKET_FORGET"] = "1"
    network_file = asked.network_file
    if network_file is not None:
        used = OF_ALL_REDUCE if architecture == "allreduce" else OF_SERVERS
        _check_network(network_file, used)
        told["HOCKET_NETWORK"] = str(network_file.absolute())
    if asked.timeline is not None:
        plan = None if asked.plan is None else Path(asked.plan)
        options.check_written(asked.timeline, *options.inputs(network_file, plan, Path(script[0])))
        told["HOCKET_TIMELINE"] = str(asked.timeline.absolute())
    return told


def _check_network(path: Path, used: Collection[str]) -> None:
    """Warn of the fits of a network's file that training goes by; note poor ones that it leaves alone."""
    from hocket.network.fit_quality import OF_ALL_REDUCE, OF_SERVERS, fit_grade

    file = read_network(path)
    unusable = (fit_grade(file, used) or "").startswith("unusable")
    itself = "leave --network out: training then measures the network itself"
    check_fits(path, file, used, instead=itself if unusable else "train by it with care")
    others = [name for name in (*OF_SERVERS, *OF_ALL_REDUCE) if name not in used]
    grade = fit_grade(file, others)
    if grade is not None and fit_grade(file, used) is None:
        note(f"{path}: {grade}; this training does not go by those, and all that it uses is good")


def _serve(script: list[str], told: dict[str, str], given: dict[str, Any]) -> NoReturn:
    """Train with parameter servers, by the options that were ``given``."""
    from hocket.cli.train_servers import train_with_servers
    from hocket.launch import Rule
    from hocket.network import parse_duration

    if given.get("transport") == "grpc" and find_spec("grpc") is None:
        raise HocketError("--transport grpc needs grpcio; pip install '.[grpc]' in a clone of Hocket")
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


def _on_one_machine(named: Sequence[Sequence[str]]) -> bool:
    """Tell whether torchrun is to start several processes, all of them here."""
    given = dict[str, str]()
    for option in named:
        name, equals, value = option[0].partition("=")
        given[name.replace("_", "-")] = value if equals else option[-1]
    machines = given.get("--nnodes", os.environ.get("PET_NNODES", "1"))
    processes = given.get("--nproc-per-node", os.environ.get("PET_NPROC_PER_NODE", "1"))
    return machines in ("1", "1:1") and processes != "1"


def _barrier(asked: Barrier | None, plan: Plan | None, policy: str | None) -> Barrier:
    """The barrier that pulls wait at: a policy's own can be replaced, a plan was made for one."""
    if plan is None:
        return asked or ("parameter" if policy == "p3" else "step")
    if asked not in (None, plan.barrier):
        raise HocketError(
            f"plan '{plan.policy}' has barrier '{plan.barrier}', not '{asked}'; leave --barrier out"
        )
    return plan.barrier


def _resolved(plan: str, architecture: str) -> tuple[Plan | None, str]:
    """The plan of a file, or a policy's name."""
    from hocket.tuner.distribute import resolve_plan
    from hocket.tuner.server_plans import resolve_server_plan

    return resolve_plan(plan) if architecture == "allreduce" else resolve_server_plan(plan)


def _split(arguments: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """The options before SCRIPT, each with its value, and SCRIPT with all that follows it."""
    found: list[list[str]] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        given = rest[0]
        if given == "--":
            return found, rest[1:]
        name, equals, value = given.partition("=")
        known = (
            torchrun_options.Spelled(name, name not in _FLAGS)
            if name in _OURS
            else torchrun_options.spelled(name)
        )
        if known is None:
            raise HocketError(_unknown(name))
        holds_value = equals or (len(given) > 2 and not given.startswith("--"))  # -t3
        taken = 2 if known.takes_value and not holds_value else 1
        found.append([f"{known.name}{equals}{value}", *rest[1:taken]])
        rest = rest[taken:]
    return found, rest


def _unknown(name: str) -> str:
    valid = [*_OURS, *(each for known in torchrun_options.OPTIONS for each in known.names)]
    beginnings = {each[: len(name) + 1]: each for each in valid}  # it may be an abbreviation, misspelt
    near = difflib.get_close_matches(name, [*valid, *beginnings], n=1)
    hint = f"did you mean {beginnings.get(near[0], near[0])}? " if near else ""
    return (
        f"{name}: neither hocket train nor torchrun has this option; {hint}SCRIPT's own stand behind it."
        " See 'hocket train --help'."
    )
