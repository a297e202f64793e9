"""Ranks on this machine, kept track of in a folder: whoever opens it next finds which run, how others ended.

A rank is KEY there: KEY.lock is locked while anything of it lives (see :mod:`hocket.launch.guard`), KEY.pid,
KEY.status and KEY.out are its process group, its status and what it printed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

LOST = -signal.SIGKILL
"""The status of a rank that left none: it was killed together with what watched it."""

_GRACE_S = 5.0
_KEY = re.compile(r"[0-9a-z-]+", re.ASCII)

Wrap = Callable[[list[str], dict[str, str]], tuple[list[str], dict[str, str]]]


class Ranks:
    """The ranks of one folder.

    ``withheld``: variables of this process that are none of theirs; they inherit the others. ``wrap`` makes
    of a command and its environment what is executed.
    """

    def __init__(self, folder: str | Path, withheld: Collection[str], wrap: Wrap | None = None) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._withheld, self._wrap = withheld, wrap
        self._groups: dict[str, int] = {}
        self._to_reap: list[subprocess.Popen[bytes]] = []
        self._stopping: dict[str, float] = {}

    def start(self, key: str, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        """Start a rank; nothing happens where it was started before. Raises OSError."""
        assert _KEY.fullmatch(key), key
        lock = os.open(self._folder / f"{key}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            if (self._folder / f"{key}.pid").exists() or not _locked(lock):
                return
            place = str(self._folder / key)
            argv = [sys.executable, "-P", "-m", "hocket.launch.guard", place, str(lock), "--", *command]
            told = {**os.environ, **environment}
            if self._wrap is not None:
                argv, told = self._wrap(argv, told)
            told = {name: value for name, value in told.items() if name not in self._withheld}
            started = subprocess.Popen(
                argv, env=told, cwd=folder, pass_fds=[lock], stdin=subprocess.DEVNULL, start_new_session=True
            )
            self._groups[key] = started.pid
            self._to_reap.append(started)
        finally:
            os.close(lock)

    def conditions(self) -> dict[str, int | None]:
        """Of every rank that was started here its status, None while anything of it runs."""
        self._to_reap = [started for started in self._to_reap if started.poll() is None]
        found = {}
        for path in self._folder.glob("*.lock"):
            found[path.stem] = self._condition(path)
        for key, deadline_s in list(self._stopping.items()):
            if found.get(key, 0) is not None:
                del self._stopping[key]
            elif time.monotonic() >= deadline_s:
                self._signal(key, signal.SIGKILL)
        return found

    def stop(self, key: str) -> None:
        """Ask a rank to end, and make it some seconds later; :meth:`conditions` says when it has."""
        if key not in self._stopping:
            self._stopping[key] = time.monotonic() + _GRACE_S
            self._signal(key, signal.SIGTERM)

    def kill(self, key: str) -> None:
        """End a rank now."""
        self._stopping.setdefault(key, 0.0)
        self._signal(key, signal.SIGKILL)

    def forget(self, key: str) -> None:
        """A rank that has ended is not asked about any more; what it left is in the folder "ended"."""
        ended = self._folder / "ended"
        ended.mkdir(exist_ok=True)
        self._groups.pop(key, None)
        for path in self._folder.glob(f"{key}.*"):
            path.replace(ended / path.name)

    def output(self, key: str, most_bytes: int = 4000) -> str:
        """The end of what a rank printed."""
        try:
            with (self._folder / f"{key}.out").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
                return file.read(most_bytes).decode(errors="replace")
        except OSError:
            return ""

    def _condition(self, lock_path: Path) -> int | None:
        key = lock_path.stem
        lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not _locked(lock):
                return None
        finally:
            os.close(lock)
        try:
            return int((self._folder / f"{key}.status").read_text())
        except (OSError, ValueError):
            return LOST

    def _signal(self, key: str, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._condition(self._folder / f"{key}.lock") is None:
                group = self._groups.get(key) or int((self._folder / f"{key}.pid").read_text())
                os.killpg(group, number)


def _locked(lock: int) -> bool:
    """Whether nobody had the lock; it is ours then, until it is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
