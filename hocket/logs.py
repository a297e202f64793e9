"""The logger ``hocket``: silent by default, one line a phase at INFO, shown where HOCKET_LOG asks for it."""

from __future__ import annotations

import logging
import os
import sys

from hocket.errors import UnknownNameError

logger = logging.getLogger("hocket")
VARIABLE = "HOCKET_LOG"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def show_log() -> None:
    """Let the logger say what HOCKET_LOG names: debug, info, warning or error; unset, it stays as it is.

    A script that has set up logging gets the lines in its own handlers, every other one on standard error.

    Raises
    ------
    UnknownNameError
        When HOCKET_LOG names no level.
    """
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if not wanted:
        return
    if wanted not in _LEVELS:
        raise UnknownNameError(f"{VARIABLE} level", wanted, list(_LEVELS))
    logger.setLevel(_LEVELS[wanted])
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("hocket: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False  # else a script that sets up logging later has every line twice
