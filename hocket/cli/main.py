"""``hocket``: the entry point, and how errors end: one line on standard error and exit status 2."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

import typer

from hocket.cli import (
    bench,
    cluster,
    compare,
    demo,
    interop,
    lab,
    models,
    network,
    plan,
    predict,
    profile,
    report,
    reproduce,
    simulate,
    train,
    tune,
)
from hocket.errors import HocketError

app = typer.Typer(
    name="hocket",
    help="Keeps a training cluster's processors and network busy at the same time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("models")(models.models)
app.command("profile")(profile.profile)
app.command("plan")(plan.plan)
app.command("simulate")(simulate.simulate)
app.command("predict")(predict.predict)
app.command("tune")(tune.tune)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("train", cls=train.Train)(train.train)
app.command("demo")(demo.demo)
app.add_typer(network.app, name="network")
app.add_typer(bench.app, name="bench")
app.add_typer(cluster.app, name="cluster")
app.add_typer(lab.app, name="lab")
app.add_typer(interop.import_app, name="import")
app.add_typer(interop.export_app, name="export")


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from hocket import __version__

        print(f"hocket {__version__}")
        raise typer.Exit


# Typer re-exports only some of its exceptions; their common base is what has a message to format.
_WrongUsage: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main() -> NoReturn:
    """Run the command line and exit: 0 for success, 2 for a request that cannot be served."""
    _settle_streams()
    status = 0
    try:
        status = app(standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except HocketError as error:
        status = _refuse(str(error))
    except _WrongUsage as error:
        status = _refuse(f"{error.format_message()} See 'hocket --help'.")  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except BrokenPipeError:
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
