"""The entry of ``hocket`` and ``python -m hocket``: signals first, so that imports can be interrupted."""

from __future__ import annotations

from typing import NoReturn

from hocket.signals import unwinding


def entry() -> NoReturn:
    """Run the command line; Ctrl-C, SIGTERM and a closed terminal unwind it, and clean up."""
    unwinding(_main)


def _main() -> NoReturn:
    from hocket.cli.main import main

    main()


if __name__ == "__main__":
    entry()
