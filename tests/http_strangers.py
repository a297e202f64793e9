"""HTTP clients who know no token: ``python -m tests.http_strangers HOST PORT COUNT`` asks so often.

32 ask at a time. Some leave the token out, some say another one and send a long body, some say garbage within
TLS or without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys

from hocket.launch.tls import client_context

_AT_ONCE = 32
_PATIENCE_S = 20.0

_BODY = b'{"format": "hocket.jobs/1", "jobs": [' + b"[" * 50_000
WITHIN = [
    b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"0" * 64 + b"\r\n\r\n",
    b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(_BODY) + _BODY,
    b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
    b"GET " + b"\xff" * 3000 + b"\r\n\r\n",
    b"POST /v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
    bytes(64),
]
WITHOUT = [b"GET /v1/status HTTP/1.1\r\n\r\n", b"\xff" * 5000]


async def _ask(host: str, port: int, draw: random.Random) -> None:
    is_plain = draw.random() < 0.2
    context = None if is_plain else client_context()
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(draw.choice(WITHOUT if is_plain else WITHIN))
        await writer.drain()
        async with asyncio.timeout(_PATIENCE_S):
            while await reader.read(1 << 16):
                pass
    finally:
        writer.transport.abort()


async def _main(host: str, port: int, count: int) -> None:
    draw, left = random.Random(0), [count]

    async def ask_on() -> None:
        while left[0] > 0:
            left[0] -= 1
            with contextlib.suppress(OSError, TimeoutError):
                await _ask(host, port, draw)

    await asyncio.gather(*(ask_on() for _ in range(_AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
