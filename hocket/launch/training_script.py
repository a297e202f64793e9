"""A script that trains, run as ``python SCRIPT`` runs it, whose end its launcher can read.

    python training_script.py SCRIPT [ARGUMENT]...

An interpreter that ends tells nobody within it with which status: ``raise SystemExit(1)`` leaves no trace to
be found when a worker says farewell to its servers, or a rank to the others. Here every exit goes through
``sys.exit``, however the script asked for it, and that is where :mod:`hocket.runtime.observe.exit_status`
listens. A launcher that wants signs of life gets them from the beginning, and the failure that ends the
script is told as :mod:`hocket.launch.failures` has it.

It is run as a file, not as a module, so that SCRIPT's folder takes the place of this one in ``sys.path``.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import NoReturn


def main() -> NoReturn:
    """Run the script in the first argument; what follows it is its own."""
    del sys.argv[0]
    path = os.path.abspath(sys.argv[0])
    if "HOCKET_SIGNS" in os.environ:
        from hocket.launch.heartbeats import give_signs

        give_signs()
    from hocket.launch.failures import tell_failure

    tell_failure(path)
    awaited = os.environ.pop("HOCKET_AWAITED", None)
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = ModuleType("__main__")
    module.__dict__.update(
        __builtins__=builtins, __file__=path, __loader__=SourceFileLoader("__main__", path), __cached__=None
    )
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    except SystemExit as asked:
        if not asked.code:
            _tell_if_apart(path, awaited)
        # Within this block what the script left on its way out is still there: models end after this is said.
        sys.exit(asked.code)
    _tell_if_apart(path, awaited)
    sys.exit()  # whatever it had exited with was caught


def _tell_if_apart(path: str, awaited: str | None) -> None:
    """Say that a script which is done has trained without Hocket, where its user may believe otherwise.

    ``awaited``: the options given that are for hocket.distribute; None where no call of it is expected.
    """
    ending = sys.modules.get("hocket.runtime.observe.exit_status")
    if awaited is None or os.environ.get("RANK") != "0" or (ending and ending.is_noticing()):
        return
    given = awaited.split()
    had = f", and {' and '.join(given)} had no effect" if given else ""
    print(
        f"hocket: {os.path.basename(path)} never called hocket.distribute: it ran as under torchrun{had}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
