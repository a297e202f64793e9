"""Failures of ranks that run a script: the first one on a machine is kept and told, those behind it are not.

A launcher names a folder in HOCKET_FAILURES. The rank that fails first leaves a file for its attempt there;
what others then say (a neighbour that is gone) would bury it. A failure that is a HocketError is a line, any
other one the script's own traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import TracebackType

import msgspec

from hocket.errors import HocketError, one_line, reason

VARIABLE = "HOCKET_FAILURES"
_FIRST = "first.json"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of a rank: its text, whether Hocket refused something, and the script's line.

    ``attempt``: how often all ranks had been started again; ``at_s``: seconds since the epoch.
    """

    rank: int
    text: str
    refused: bool
    line: str
    attempt: int
    at_s: float

    def sentence(self) -> str:
        """The failure in one line."""
        return f"rank {self.rank}{f', {self.line}' if self.line else ''}: {self.text}"


def first_failure(folder: str | Path) -> Failure | None:
    """The failure that the ranks of a launcher have left in its folder."""
    try:
        return msgspec.json.decode((Path(folder) / _FIRST).read_bytes(), type=Failure)
    except FileNotFoundError:
        return None


def is_detailed() -> bool:
    """Tell whether every rank's traceback is asked for: by HOCKET_DEBUG, or a log of each phase."""
    return bool(os.environ.get("HOCKET_DEBUG")) or os.environ.get("HOCKET_LOG", "").lower() in (
        "info",
        "debug",
    )


def tell_failure(script: str) -> None:
    """Begin to run ``script``: an exception that ends it is kept and told, see the module's docstring.

    Torch's hook and the script's own may come in front.
    """
    folder, began_s = os.environ.pop(VARIABLE, None), time.time()  # not what the script itself starts
    earlier = None if folder is None else first_failure(folder)
    if folder is not None and earlier is not None and earlier.attempt != _attempt():
        (Path(folder) / _FIRST).unlink(missing_ok=True)

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        first = True
        if isinstance(error, Exception):
            _give_to_torch(error)
            if folder is not None:
                first = _keep(folder, _failure(error, trace, script), began_s)
        if is_detailed():
            traceback.print_exception(kind, error, trace)
        elif isinstance(error, HocketError):
            if first and (folder is None or not _is_last_attempt()):  # else the launcher ends with it
                rank = os.environ.get("RANK")
                stderr = sys.__stderr__ or sys.stderr  # torch's hook would say the rank once more
                print(f"hocket: {'' if rank is None else f'rank {rank}: '}{error}", file=stderr)
        elif first and (folder is None or not isinstance(error, KeyboardInterrupt)):
            traceback.print_exception(kind, error, _within(trace, error, script))

    sys.excepthook = tell


def _give_to_torch(error: Exception) -> None:
    """Write the file that torch's launcher names for it, as its own decorator ``record`` does."""
    if "torch" in sys.modules:
        handler = importlib.import_module(
            "torch.distributed.elastic.multiprocessing.errors"
        ).get_error_handler()
        try:
            raise error  # it writes the traceback of what is being handled
        except Exception:
            handler.record_exception(error)


def _failure(error: Exception, trace: TracebackType | None, script: str) -> Failure:
    return Failure(
        rank=int(os.environ.get("RANK", "0")),
        text=str(error) if isinstance(error, HocketError) else one_line(_described(error)),
        refused=isinstance(error, HocketError),
        line=_line(trace, script),
        attempt=_attempt(),
        at_s=time.time(),
    )


def _keep(folder: str, failure: Failure, began_s: float) -> bool:
    """Keep a failure unless there is one of ranks that run beside this one; tell whether it is kept."""
    path = Path(folder) / _FIRST
    # Whole from the moment that it is there, and there once.
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(msgspec.json.encode(failure))
        file.flush()
        for _ in range(2):
            try:
                os.link(file.name, path)
                return True
            except FileExistsError:
                earlier = first_failure(folder)
                if earlier is not None and earlier.at_s >= began_s:
                    return False
                path.unlink(missing_ok=True)  # of ranks that were ended before this one began
    return False


def _attempt() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _is_last_attempt() -> bool:
    return _attempt() >= int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))


def _described(error: Exception) -> str:
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    why = reason(error)
    return f"{name}: {why}" if why else name


def _within(trace: TracebackType | None, error: BaseException, script: str) -> TracebackType | None:
    """``trace`` from the script's own frame on; all of it where the script has none."""
    own = trace
    while own is not None and own.tb_frame.f_code.co_filename != script:
        own = own.tb_next
    is_syntax = isinstance(error, SyntaxError) and error.filename == script
    return own or (None if is_syntax else trace)


def _line(trace: TracebackType | None, script: str) -> str:
    """The line of the script at which it failed, or what it had called did."""
    found = [lineno for frame, lineno in traceback.walk_tb(trace) if frame.f_code.co_filename == script]
    return f"{Path(script).name} line {found[-1]}" if found else ""
