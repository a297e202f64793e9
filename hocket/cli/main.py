"""``hocket``: the entry point, and how errors end: one line on standard error and exit status 2."""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer

from hocket.cli import command_help, printing
from hocket.cli.command_table import COMMANDS, PREDICT, SHARE, STUDY, TRAIN
from hocket.errors import HocketError

_DOORS = """\
Hocket: less waiting for the network in PyTorch data-parallel training.

{train}: two lines in your script, then torchrun through us
  hocket doctor
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

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, commands in COMMANDS.items():
            for command in commands:
                command.rich_help_panel = panel
                self.add_command(command)

    def show(self, ctx: Any) -> None:
        """Print an example for each purpose."""
        print(_DOORS.format(train=TRAIN, predict=PREDICT, share=SHARE, study=STUDY), end="")


app = command_help.App(
    name="hocket",
    cls=_Doors,
    help="Less waiting for the network in PyTorch data-parallel training.",
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)


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
    **{"lightning": "lightning", "accelerate": "accelerate", "aiohttp": "cluster"},
}


def main() -> NoReturn:
    """Run the command line and exit: 0 for success, 2 for a request that cannot be served."""
    _settle_streams()
    printing.reset_verbosity()
    status = 0
    try:
        status = app(prog_name="hocket", standalone_mode=False) or 0
        if not status:
            printing.print_end()
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
        status = _refuse(
            f"{package} is not installed; pip install '.[{_EXTRAS[package]}]' in a clone of Hocket"
        )
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
