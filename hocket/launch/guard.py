"""The parent of a rank: what becomes of the rank can be read afterwards, whoever is alive by then.

    python -m hocket.launch.guard PLACE LOCK FILES -- COMMAND...

PLACE.lock, open as LOCK, is locked by whoever started this, before; the command inherits the lock, so it is
free when everything has ended, and not before. PLACE.pid holds the process group, PLACE.status how it ended.
FILES is how many files the command may open at first, whatever the one who started this may.

PLACE.out is what it prints. The rank writes to that file itself and waits for nobody, not even for this
process, which now and then looks how long the file is: once it is too long its last part moves to
PLACE.earlier, and the rank goes on at the beginning.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys

MOST_BYTES = 4 << 20
"""How long PLACE.out may become; PLACE.earlier, too, and what is printed while it is copied."""

_LOOK_EVERY_S = 1.0
_PIECE_BYTES = 1 << 18


def main() -> int:
    """Run the command, as nobody's child: Ray, for one, ends its workers' children with them."""
    if os.fork():
        os._exit(0)
    place, lock, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    command = sys.argv[5:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, most), most))
    # What ends the rank is meant for the command, which is in this process group too.
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
            out.write(f"hocket: {command[0]}: {error.strerror}\n".encode())
            status = 127
    cut(place)
    write(f"{place}.status", status)
    return 0


def _look_again(place: str) -> None:
    def look(*_: object) -> None:
        cut(place)
        _look_again(place)  # not before: a slow disk would call us amid a cut

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_EVERY_S)


def cut(place: str, most_bytes: int = MOST_BYTES) -> None:
    """Empty PLACE.out if it is longer than ``most_bytes``; so much of it, the last, is in PLACE.earlier then.

    What is printed in the moment between the last read and the emptying is lost.
    """
    with contextlib.suppress(OSError), open(f"{place}.out", "r+b", buffering=0) as out:
        if out.seek(0, os.SEEK_END) <= most_bytes:
            return
        out.seek(-most_bytes, os.SEEK_END)
        with open(f"{place}.earlier", "wb", buffering=0) as earlier:
            left = 2 * most_bytes  # whoever prints as fast as we copy is not followed for ever
            while left > 0 and (piece := out.read(min(left, _PIECE_BYTES))):
                earlier.write(piece)
                left -= len(piece)
            out.truncate(0)


def write(path: str, number: int) -> None:
    """Leave a number in a file, whole."""
    with open(f"{path}.new", "w") as file:
        file.write(str(number))
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    sys.exit(main())
