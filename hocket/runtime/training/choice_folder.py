"""The folder of choices that were made: a file each, named by what the choice is for."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hocket.document import read_document, write_json

CACHE_VARIABLE = "HOCKET_CACHE"
"""The variable that names the folder of all that is kept; empty or "off": nothing is."""
FORGET_VARIABLE = "HOCKET_FORGET"
"""The variable that has choices made anew, and what was kept replaced: 1."""


@dataclass(frozen=True)
class ChoiceFolder:
    """The folder of kept choices; ``forget``: read none of them, replace the one that is made anew."""

    path: Path
    forget: bool = False

    def file(self, key: str) -> Path:
        """The file of the choice of this ``key``."""
        return self.path / f"{key}.json"

    def has(self, key: str) -> bool:
        """Tell whether there is a choice of this ``key`` to read."""
        return not self.forget and self.file(key).exists()

    def load(self, key: str) -> Any:
        """The document of this ``key``, None where there is none.

        Raises
        ------
        FormatError
            Where the file cannot be read, or is no JSON.
        """
        return read_document(self.file(key)) if self.has(key) else None

    def save(self, key: str, document: Any) -> None:
        """Keep ``document``, whole or not at all.

        Raises
        ------
        HocketError
            Where it cannot be written.
        """
        with contextlib.suppress(OSError):  # the writing below says what is wrong
            self.path.mkdir(parents=True, exist_ok=True)
        write_json(document, self.file(key))


def folder_of_environment() -> ChoiceFolder | None:
    """The folder that the environment names, by default below the user's cache folder; None: no folder."""
    given = os.environ.get(CACHE_VARIABLE)
    if given is not None and given.strip().lower() in ("", "off"):
        return None
    if given is not None:
        cache = Path(given).absolute()
    else:
        below = os.environ.get("XDG_CACHE_HOME", "")
        try:
            cache = (Path(below) if os.path.isabs(below) else Path.home() / ".cache") / "hocket"
        except RuntimeError:  # a user without a home
            return None
    return ChoiceFolder(cache / "choices", forget=os.environ.get(FORGET_VARIABLE, "") == "1")
