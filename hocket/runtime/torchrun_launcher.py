"""Torchrun as ``hocket train`` runs it: failures of ranks end in one line, with the reason.

    python -P torchrun_launcher.py [torchrun's OPTION]... SCRIPT [ARGUMENT]...

The status is torchrun's: 1 where a rank has failed; 2 where Hocket refused what a rank's script asked for.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from hocket.errors import one_line
from hocket.launch.failures import VARIABLE, Failure, first_failure, is_detailed

_DRAGGED = (1, -signal.SIGTERM)
_NOTICED_S = 5.0
_WHY = {signal.SIGKILL: ", as the system does where memory runs out"}
_TORCHS_WORDS = ("failed (exitcode", "Sending process")


def main(arguments: list[str]) -> int:
    """Run torchrun; the status to exit with."""
    if not is_detailed():
        logging.getLogger("torch.distributed.elastic.multiprocessing.api").addFilter(_is_news)
    with tempfile.TemporaryDirectory(prefix="hocket-train-") as folder:
        os.environ[VARIABLE] = folder
        try:
            run.run(run.parse_args(arguments))
        except ChildFailedError as failed:
            if is_detailed():
                traceback.print_exc()
            return _end_of_failure(failed, Path(folder))
        except SignalException as stopped:
            _say(f"stopped by {signal.Signals(stopped.sigval).name}; all ranks were ended")
            return 1
        except Exception as error:
            if is_detailed():
                traceback.print_exc()
            _say(f"torchrun: {type(error).__name__}: {error}")
            return 1
    return 0


def _is_news(record: logging.LogRecord) -> bool:
    """Tell whether torch's log says more than the line that we end with."""
    return not record.getMessage().startswith(_TORCHS_WORDS)


def _end_of_failure(failed: ChildFailedError, folder: Path) -> int:
    first = first_failure(folder)
    rank, process = _first_process(failed, first)
    kept = Path(process.error_file)
    logs = f" (tracebacks of all ranks: {kept.parents[1]}/*/error.json)" if kept.is_file() else ""
    if first is not None and (not first.refused or process.exitcode in _DRAGGED):
        _say(f"{first.sentence()}{logs}")
        return 2 if first.refused else 1
    # A rank that ended otherwise than on an error is the reason: others fail when their neighbour is gone.
    end = (
        f"was killed by {process.signal_name()}{_WHY.get(-process.exitcode, '')}"
        if process.exitcode < 0
        else f"ended with status {process.exitcode}"
    )
    others = "" if first is None else f"; {first.sentence()}"
    _say(f"rank {rank} {end}{others}{logs}")
    return 1


def _first_process(failed: ChildFailedError, first: Failure | None) -> tuple[int, Any]:
    """The process, with its rank, that ended otherwise than on an error, early enough to be the reason."""
    latest_s = float("inf") if first is None else first.at_s + _NOTICED_S
    for rank, process in failed.failures.items():
        if process.exitcode not in _DRAGGED and process.timestamp <= latest_s:
            return rank, process
    if first is not None and first.rank in failed.failures:
        return first.rank, failed.failures[first.rank]
    return failed.get_first_failure()


def _say(text: str) -> None:
    print(f"hocket: {one_line(text)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.argv[0] = "hocket train"
    sys.exit(main(sys.argv[1:]))
