"""Callers who know no token, of all kinds: ``python -m tests.strangers HOST PORT COUNT`` calls so often.

Some are silent, some send garbage, some begin TLS and go no further, some agree on TLS and say what is no
hello, nested as deeply as fits or a byte now and then. Nothing that the server does fails them.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import ssl
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from hocket.launch.control import LENGTH
from hocket.launch.tls import Tls, Wire, client_context

_HELD = 300
_PATIENCE_S = 10.0

NESTED = b'{"x":' + b"[" * 1900 + b"]" * 1900 + b"}"
HELLO = b'{"role":"worker","index":0,"address":"","token":"0123456789abcdef"}'
HELLOS = [
    *(
        LENGTH.pack(len(said)) + said
        for said in (NESTED, HELLO, b"{}", b"null", b'{"x":"\xff"}', b"[" * 4000)
    ),
    LENGTH.pack(0),
    LENGTH.pack(2**32 - 1),
    LENGTH.pack(4096) + b"{",
    b"\x00",
]
GARBAGE = [
    *(b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", bytes(4096), b"\xff" * 70_000),
    *(
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x16\x03\x01\xff\xff" + b"x" * 3000,
        b"\x15\x03\x03\x00\x02\x02\x00",
        b"\x80",
    ),
]


def call(host: str, port: int, number: int, draw: random.Random) -> socket.socket:
    """The connection of a stranger of kind ``number``, which may be held."""
    plain = socket.create_connection((host, port), _PATIENCE_S)
    with contextlib.suppress(OSError, ssl.SSLError):
        match number % 4:
            case 1:
                plain.sendall(draw.choice(GARBAGE))
            case 2:
                plain.sendall(draw.randbytes(draw.randrange(1, 300)))
            case 3:
                tls = Tls(Wire(plain), client_context(), server_side=False)
                tls.handshake()
                tls.send(draw.choice(HELLOS))
    return plain


def main(host: str, port: int, count: int) -> None:
    """Call ``count`` times; the last 300 are held open, and some of them say a byte more now and then."""
    draw, held = random.Random(0), deque[socket.socket]()
    for number in range(count):
        with contextlib.suppress(OSError):
            held.append(call(host, port, number, draw))
        if len(held) > _HELD:
            held.popleft().close()
        if held and number % 7 == 0:
            with contextlib.suppress(OSError):
                draw.choice(held).sendall(b"\x16")
    select.select([], [], [], 0.1)
    for each in held:
        each.close()


@contextlib.contextmanager
def strangers(address: tuple[str, int], count: int) -> Iterator[Callable[[], None]]:
    """Strangers in a process of their own; what is given waits for their end."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "tests.strangers", address[0], str(address[1]), str(count)]
    process = subprocess.Popen(command, cwd=root)
    try:

        def join() -> None:
            assert process.wait(250) == 0

        yield join
    finally:
        process.kill()
        process.wait()


def resident_bytes() -> int:
    """How much memory this process takes."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
