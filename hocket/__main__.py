"""Where ``hocket`` and ``python -m hocket`` begin: signals first, so that imports can be interrupted."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def entry() -> NoReturn:
    """Run the command line; Ctrl-C, SIGTERM and a closed terminal unwind it, and clean up."""
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup's wish stays
        signal.signal(signal.SIGHUP, _stop)
    from hocket.cli.main import main

    main()


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    entry()
