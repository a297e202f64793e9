"""The page's server: two documents, to whoever asks it by its own name; who is slow keeps nobody out."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from hocket.cluster.live.page_server import PageServer
from hocket.launch.job import split_address
from tests.unit.cluster.live.clusters import LIMIT_S


@pytest.fixture
def server() -> Iterator[PageServer]:
    made = PageServer("127.0.0.1", 0, b"the page", print)
    yield made
    made.close()


def address(server: PageServer) -> str:
    return server.url.removeprefix("http://").rstrip("/")


def answer(server: PageServer, path: str, method: str = "GET", host: str = "") -> tuple[int, bytes]:
    at = address(server)
    connection = http.client.HTTPConnection(at, timeout=10)
    connection.request(method, path, headers={"Host": host or at})
    found = connection.getresponse()
    return found.status, found.read()


def drip(connected: socket.socket, until_s: float) -> None:
    while time.monotonic() < until_s:
        connected.sendall(b"P")
        time.sleep(0.01)


def test_it_gives_the_page_and_the_state(server: PageServer) -> None:
    server.state = b'{"jobs": []}'
    assert answer(server, "/") == (200, b"the page")
    assert answer(server, "/state") == (200, b'{"jobs": []}')


def test_it_gives_nothing_else_and_nothing_to_other_names(server: PageServer) -> None:
    assert answer(server, "/../token")[0] == 404
    assert answer(server, "/", method="POST")[0] == 501
    assert answer(server, "/state", host="example.org")[0] == 403


def test_so_many_are_served_at_a_time_and_none_for_long(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hocket.cluster.live.page_server._MOST_REQUESTS", 4)
    said: list[str] = []
    server = PageServer("127.0.0.1", 0, b"x" * (1 << 24), said.append)
    others = set(threading.enumerate())

    def connected() -> socket.socket:
        return stack.enter_context(socket.create_connection(split_address(address(server)), 10))

    with contextlib.ExitStack() as stack:
        stack.callback(server.close)
        silent, drips, _, does_not_read = (connected() for _ in range(4))
        drips.sendall(b"GET / HT")
        does_not_read.sendall(f"GET / HTTP/1.0\r\nHost: {address(server)}\r\n\r\n".encode())
        for _ in range(6):
            assert connected().recv(100).startswith(b"HTTP/1.0 503 ")
        assert len(set(threading.enumerate()) - others) <= 4
        assert said == [
            "there are 4 requests for the page at once; others are sent away until some have gone"
        ]

        monkeypatch.setattr("hocket.cluster.live.page_server._REQUEST_S", 0.1)
        assert silent.recv(100) == b""
        deadline = time.monotonic() + LIMIT_S
        with pytest.raises(OSError, match=r"Broken pipe|reset by peer"):
            drip(drips, deadline)
        monkeypatch.setattr("hocket.cluster.live.page_server._REQUEST_S", 10.0)
        while answer(server, "/state")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert capfd.readouterr() == ("", "")
