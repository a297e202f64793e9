"""The parent of a rank: what becomes of the rank can be read afterwards, whoever is alive by then.

    python -m hocket.launch.guard PLACE LOCK -- COMMAND...

PLACE.lock, open as LOCK, is locked by whoever started this, before; the command inherits the lock, so it is
free when everything has ended, and not before. PLACE.pid holds the process group, PLACE.status how it ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main() -> int:
    """Run the command, as nobody's child: Ray, for one, ends its workers' children with them."""
    if os.fork():
        os._exit(0)
    place, lock = sys.argv[1], int(sys.argv[2])
    command = sys.argv[4:]
    # What ends the rank is meant for the command, which is in this process group too.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    write(f"{place}.pid", os.getpgid(0))
    with open(f"{place}.out", "ab") as out:
        try:
            status = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[lock]
            ).wait()
        except OSError as error:
            out.write(f"hocket: {command[0]}: {error.strerror}\n".encode())
            status = 127
    write(f"{place}.status", status)
    return 0


def write(path: str, number: int) -> None:
    """Leave a number in a file, whole."""
    with open(f"{path}.new", "w") as file:
        file.write(str(number))
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    sys.exit(main())
