"""The place in a script from which something was reached: its own line, and the function that it called."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

_BELOW = sys.stdlib_module_names | {"torch", "hocket"}
_WRAPPERS = frozenset({"wrapper", "inner", "decorate_context", "decorate_autocast"})  # of torch's decorators


def place_in_script() -> str:
    """``train.py:41 (clip_grad_norm_)``: the nearest line outside of torch, Hocket and Python's own modules.

    In brackets is the function that this line called, where it is one of a name for callers; "" where a
    thread of torch's runs no line of a script.
    """
    called = ""
    frame: FrameType | None = sys._getframe(2)  # where the asking function was called
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in _BELOW:
            place = f"{_shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"
            return f"{place} ({called})" if called else place
        name = frame.f_code.co_name
        if name.isidentifier() and not name.startswith("_") and name not in _WRAPPERS:
            called = name
        elif module == "hocket":
            called = ""  # hooks of ours: no script calls these, nor what they call
        frame = frame.f_back
    return ""


def _shown_path(filename: str) -> str:
    path = Path(filename)
    parts = path.parts
    if "site-packages" in parts:
        return "/".join(parts[parts.index("site-packages") + 1 :])
    folder = Path.cwd()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
