"""The end of a script: tells whether it has failed, as far as an interpreter at its end can tell.

The exception by which a script leaves (``raise SystemExit(1)``) is seen where Hocket runs it (``hocket
train``), as :mod:`hocket.launch.training_script` passes every exit to ``sys.exit``. Under torchrun itself
nothing is left of it, and such a rank says of itself that it is done.
"""

from __future__ import annotations

import sys
from typing import NoReturn

_exit = sys.exit
_status: object = None
_noticing = False


def notice_exits() -> None:
    """From now on :func:`script_failed` knows what a script gave ``sys.exit``; nothing else is left of it."""
    global _noticing
    _noticing = True
    sys.exit = _noticed_exit


def is_noticing() -> bool:
    """Tell whether :func:`notice_exits` was called, as every training of ours does."""
    return _noticing


def _noticed_exit(status: object = None, /) -> NoReturn:
    global _status
    _status = status
    _exit(status)  # type: ignore[arg-type]


def forget_exit() -> None:
    """The script trains on: whatever it exited with was caught."""
    global _status
    _status = None


def script_failed() -> bool:
    """True if the interpreter ends on an error, or on an exit that says that there was one."""
    return getattr(sys, "last_value", None) is not None or _status not in (None, 0)
