"""A cluster whose database is damaged: ranks that run, jobs that can be read, a new database of these."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hocket.cluster.live.database import FILE, Database, read_record, whole
from hocket.cluster.live.job_record import Record
from hocket.errors import HocketError
from hocket.launch.rank_processes import Ranks
from hocket.text import counted

_RANK = re.compile(r"(\d+)-(\d+)-(\d+)")
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, kw_only=True)
class RunningRank:
    """A rank that runs: the folder that keeps track of it, its key there; its job's number, attempt, rank."""

    folder: Path
    key: str
    number: int
    attempt: int
    rank: int


@dataclass(frozen=True, kw_only=True)
class Remains:
    """The rest of a cluster.

    ``is_whole``: its database needs no salvage; ``settings``, ``records``: those that can be read;
    ``unreadable``: how many jobs cannot; ``ranks``: those that run on this machine.
    """

    is_whole: bool
    settings: dict[str, str]
    records: list[Record]
    unreadable: int
    ranks: list[RunningRank]


def remains_of(folder: Path) -> Remains:
    """The remains of the cluster in ``folder``; nothing is changed there.

    Raises
    ------
    HocketError
        Where there is no cluster.
    """
    if not (folder / FILE).exists():
        raise HocketError(f"{folder}: has no {FILE}; give the --state FOLDER of a cluster")
    ranks = list(_running_ranks(folder))
    with tempfile.TemporaryDirectory(prefix="hocket-salvage-") as copied:
        for path in folder.glob(f"{FILE}*"):  # with its log; what is read must not change it
            shutil.copy(path, copied)
        with contextlib.closing(sqlite3.connect(Path(copied, FILE))) as connection:
            numbers = {rank.number for rank in ranks} | _job_folders(folder)
            settings, is_whole = _settings(connection), whole(connection)
            records, unreadable = _records(connection, max(numbers, default=0))
    return Remains(is_whole=is_whole, settings=settings, records=records, unreadable=unreadable, ranks=ranks)


def _running_ranks(folder: Path) -> Iterator[RunningRank]:
    for place in sorted({path.parent for path in folder.rglob("*.lock") if _RANK.fullmatch(path.stem)}):
        for key, status in sorted(Ranks(place, ()).conditions().items()):
            match = _RANK.fullmatch(key)
            if status is None and match is not None:
                number, attempt, rank = map(int, match.groups())
                yield RunningRank(folder=place, key=key, number=number, attempt=attempt, rank=rank)


def _job_folders(folder: Path) -> set[int]:
    return {int(path.name) for path in (folder / "jobs").glob("*") if path.name.isdecimal()}


def _settings(connection: sqlite3.Connection) -> dict[str, str]:
    try:
        return dict(connection.execute("select name, value from settings"))
    except sqlite3.DatabaseError:
        return {}


def _records(connection: sqlite3.Connection, least: int) -> tuple[list[Record], int]:
    """Jobs read one by one, since a damaged page hides its own rows alone, and how many are hidden."""
    last = least
    with contextlib.suppress(sqlite3.DatabaseError):
        last = max(last, connection.execute("select max(number) from jobs").fetchone()[0] or 0)
    found: list[Record] = []
    hidden = 0
    for number in range(1, last + 1):
        try:
            if (record := read_record(connection, number)) is not None:
                found.append(record)
            else:
                hidden += 1
        except (sqlite3.DatabaseError, ValueError):
            hidden += 1
    return found, hidden


def end_ranks_of(remains: Remains) -> None:
    """End the ranks that run, and return when they have."""
    left: dict[Path, set[str]] = {}
    for rank in remains.ranks:
        left.setdefault(rank.folder, set()).add(rank.key)
    folders = {place: Ranks(place, ()) for place in left}
    for place, keys in left.items():
        for key in keys:
            folders[place].stop(key)
    while any(
        folders[place].conditions().get(key, 0) is None for place, keys in left.items() for key in keys
    ):
        time.sleep(_LOOK_EVERY_S)


def take_over(folder: Path, remains: Remains) -> Path:
    """Give the cluster a database of what can be read; the damaged one stays beside it, at the path returned.

    Raises
    ------
    HocketError
        Where too little can be read, or a manager runs.
    """
    if "epoch_s" not in remains.settings:
        raise HocketError(
            f"{folder}: the cluster's settings cannot be read, so nothing can be taken over; "
            "--end ends what runs, then begin a cluster in another folder"
        )
    kept = folder / f"{FILE}.damaged"
    if kept.exists():
        raise HocketError(f"{kept} is there from another salvage; move it away first")
    with Database.locked(folder):
        for path in folder.glob(f"{FILE}*"):
            path.replace(path.with_name(path.name.replace(FILE, kept.name, 1)))
    database = Database(folder)
    try:
        database.restore(remains.settings, remains.records)
        database.note(time.time() - float(remains.settings["epoch_s"]), None, _told(remains))
    finally:
        database.close()
    return kept


def _told(remains: Remains) -> str:
    lost = f", {counted(remains.unreadable, 'job')} could not be read" if remains.unreadable else ""
    return f"{counted(len(remains.records), 'job')} salvaged from a damaged database{lost}"
