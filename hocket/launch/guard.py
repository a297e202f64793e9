"""The parent of a rank, by which the rank's end can be read from files even if its starter is gone.

    python -m hocket.launch.guard PLACE LOCK FILES -- COMMAND...

PLACE.lock, open as LOCK, is locked before, by the process that starts this; the command inherits the lock, so
it is free when everything has ended, and not before. PLACE.pid holds the process group, PLACE.status how it
ended. FILES is how many files the command may open at first, however many its starter may.

PLACE.out is what it prints. The rank writes to that file itself and waits for nobody, not even for this
process, which now and then looks how long the file is: once it is too long its last part moves to
PLACE.earlier, and the rank goes on at the beginning.

A full disk changes nothing of that: the process that starts this makes room for both numbers
before (:func:`make_room`), and what is printed is cut all the same.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys

MOST_BYTES = 4 << 20
"""The most bytes of PLACE.out; of PLACE.earlier, too, and of what is printed while it is copied."""

NOT_STARTED, PREFIX = 127, "hocket: "
"""The status of a rank whose command cannot be executed, and how the line that says why begins."""

_LOOK_EVERY_S = 1.0
_HURRY_S = 0.05  # where much is printed, until the next look
_NUMBER_BYTES = 20


def main() -> int:
    """Run the command, as nobody's child: Ray, for one, ends its workers' children with them."""
    if os.fork():
        os._exit(0)
    place, lock, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    command = sys.argv[5:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, most), most))
    # A signal that ends the rank is meant for the command, which is in this process group too.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    write(f"{place}.pid", os.getpgid(0))
    with open(f"{place}.out", "ab") as out:  # to append: who prints goes on at the end, wherever that is now
        try:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[lock]
            )
            _look_again(place)
            status = started.wait()
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(out.fileno(), f"{PREFIX}{command[0]}: {error.strerror}\n".encode())
            status = NOT_STARTED
    cut(place)
    write(f"{place}.status", status)
    return 0


def _look_again(place: str) -> None:
    def look(*_: object) -> None:
        was_long = cut(place)
        # Not before: a slow disk would call us amid a cut.
        signal.setitimer(signal.ITIMER_REAL, _HURRY_S if was_long else _LOOK_EVERY_S)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _HURRY_S)


# Of what came during a read, so that little is lost; bounded, as a rank may print as fast as it is read.
_READS_AGAIN = 8


def cut(place: str, most_bytes: int = MOST_BYTES) -> bool:
    """Empty PLACE.out if it is longer than ``most_bytes``; so much of it, the last, is in PLACE.earlier then.

    Returns whether it was longer. Output between the last read and the emptying is lost. The
    file is emptied first: on a full disk there is no other room for what is kept.
    """
    with contextlib.suppress(OSError), open(f"{place}.out", "r+b", buffering=0) as out:
        if out.seek(0, os.SEEK_END) <= most_bytes:
            return False
        out.seek(-most_bytes, os.SEEK_END)
        last = out.read(most_bytes)
        for _ in range(_READS_AGAIN):
            if not (more := out.read(most_bytes)):
                break
            last = (last + more)[-most_bytes:]
        out.truncate(0)
        with open(f"{place}.earlier", "wb", buffering=0) as earlier:
            earlier.write(last)
        return True
    return False


def make_room(place: str) -> None:
    """Have room on the disk for what is written later about a rank; raises OSError where there is none."""
    for name in ("pid", "status"):
        with open(f"{place}.{name}.new", "wb", buffering=0) as file:
            file.write(b" " * _NUMBER_BYTES)
    with open(f"{place}.out", "ab"):
        pass


def write(path: str, number: int) -> None:
    """Leave a number in a file, whole, in the room that was made for it."""
    file = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(file, b"%*d" % (_NUMBER_BYTES, number), 0)
    finally:
        os.close(file)
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(f"hocket: a rank cannot be watched: {error}")
