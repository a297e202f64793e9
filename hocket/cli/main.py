"""``hocket``: the entry point, and how errors end: one line on standard error and exit status 2."""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer

from hocket.cli import (
    command_help,
    compare_command,
    demo_command,
    interop_commands,
    lab_command,
    models_command,
    network_command,
    plan_command,
    predict_command,
    printing,
    profile_command,
    report_command,
    reproduce_command,
    simulate_command,
    train_command,
    tune_command,
)
from hocket.cli.bench import bench_command
from hocket.cli.cluster import cluster_command
from hocket.errors import HocketError

TRAIN, PREDICT = "Train faster", "Predict before you rent"
SHARE, STUDY, MORE = "Share a cluster", "Study the algorithms", "Traces and pages"

_DOORS = """\
Hocket: less waiting for the network in PyTorch data-parallel training.

{train}: two lines in your script, then torchrun through us
  hocket train --nproc-per-node 2 train.py

{predict}: what N machines will give, from one worker's step
  hocket profile mine.py:job -o step.json
  hocket predict step.json --bandwidth 10Gbit/s

{share}: placement and admission, tried on a job set first
  hocket cluster generate paper -o jobs.json
  hocket cluster simulate jobs.json --placement lwf-1 --policy ada-srsf

{study}: published methods side by side, each with its bound
  hocket demo
  hocket reproduce caramel --quick

All commands: hocket --help. Options of one: hocket predict --help.
"""


class _Doors(command_help.CommandGroup):
    """All commands; the bare name shows an example for each thing that people come for."""

    def show(self, ctx: Any) -> None:
        """Print an example for each purpose."""
        print(_DOORS.format(train=TRAIN, predict=PREDICT, share=SHARE, study=STUDY), end="")

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands, those of one purpose together."""
        panels = (TRAIN, PREDICT, SHARE, STUDY, MORE)
        commands: dict[str, Any] = dict(self.commands)
        return sorted(commands, key=lambda name: panels.index(commands[name].rich_help_panel))


app = command_help.App(
    name="hocket",
    cls=_Doors,
    help="Less waiting for the network in PyTorch data-parallel training.",
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
for _panel, _name, _function, _class, _about in (
    (
        TRAIN,
        "train",
        train_command.train,
        train_command.Train,
        "Train on several processes: torchrun, told how to plan",
    ),
    (TRAIN, "plan", plan_command.plan, None, "Plan what is transferred in which order"),
    (
        TRAIN,
        "tune",
        tune_command.tune,
        None,
        "Rank every policy on your step, search on, write the best plan",
    ),
    (TRAIN, "compare", compare_command.compare, None, "Compare a predicted timeline with a measured one"),
    (
        PREDICT,
        "profile",
        profile_command.profile,
        None,
        "Measure one worker's step, or derive it for a device",
    ),
    (PREDICT, "predict", predict_command.predict, None, "Predict throughput for any number of workers"),
    (PREDICT, "simulate", simulate_command.simulate, None, "Simulate steps under one policy or plan"),
    (STUDY, "demo", demo_command.demo, None, "The whole flow on a real model, measured here"),
    (STUDY, "reproduce", reproduce_command.reproduce, None, "The papers' tables and figures, made again"),
    (STUDY, "models", models_command.models, None, "The networks that can be named"),
    (MORE, "report", report_command.report, None, "Results on one HTML page"),
):
    app.command(_name, cls=_class or command_help.Command, rich_help_panel=_panel, short_help=_about)(
        _function
    )
for _panel, _name, _group, _about in (
    (PREDICT, "network", network_command.app, "Measure the network that steps are planned for"),
    (SHARE, "cluster", cluster_command.app, "Many jobs on one cluster, simulated or run"),
    (STUDY, "bench", bench_command.app, "Time training, planners and the simulator"),
    (STUDY, "lab", lab_command.app, "An emulated cluster on this machine (Linux, root)"),
    (MORE, "import", interop_commands.import_app, "Steps from traces of PyTorch and Chakra"),
    (MORE, "export", interop_commands.export_app, "Steps and timelines for other tools"),
):
    app.add_typer(_group, name=_name, rich_help_panel=_panel, short_help=_about)


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    quiet: command_help.Quiet = False,
    verbose: command_help.Verbose = False,
) -> None:
    if version:
        from hocket import __version__

        print(f"hocket {__version__}")
        raise typer.Exit


# Typer re-exports only some of its exceptions; their common base is what has a message to format.
_WrongUsage: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


# What is installed on request, and may be there in part: commands that know of it say so themselves.
_EXTRAS = {
    **{"torch": "torch", "ortools": "optimal", "ray": "ray", "grpc": "grpc", "google": "chakra"},
    **{"lightning": "lightning", "accelerate": "accelerate"},
}


def main() -> NoReturn:
    """Run the command line and exit: 0 for success, 2 for a request that cannot be served."""
    _settle_streams()
    printing.settle()
    status = 0
    try:
        status = app(prog_name="hocket", standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except HocketError as error:
        if printing.is_verbose():
            traceback.print_exc()
        status = _refuse(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        status = _refuse(f"{package} is not installed; pip install 'hocket[{_EXTRAS[package]}]'")
    except _WrongUsage as error:
        status = _refuse(command_help.usage_error(error))
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except (BrokenPipeError, command_help.ReaderGoneError):
        # The reader (head, less) has left; what is still buffered must not fail again on the way out.
        _discard_output()
    except OSError as error:
        _discard_output()
        status = _refuse(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except MemoryError as error:
        more = f" ({error})" if str(error) else ""
        status = _refuse(
            f"that needs more memory than there is{more}; ask for less, or give the machine more"
        )
    sys.exit(status)


def _settle_streams() -> None:
    """Notes never go where the result does, and what a locale cannot print is escaped."""
    if sys.stderr is None:  # closed, and print takes None for standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open to the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _refuse(message: str) -> int:
    print(f"hocket: {HocketError(message)}", file=sys.stderr)
    return 2


def _discard_output() -> None:
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
