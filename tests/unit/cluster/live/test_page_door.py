"""The page's door: here for whoever asks by its name, elsewhere with the token; nobody is kept out."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from hocket.cluster.live.api.page_door import page_door
from hocket.errors import HocketError
from hocket.launch.job import split_address
from hocket.report.live_page import render_live
from tests.served_page import ServedPage, page_served
from tests.unit.cluster.live.clusters import LIMIT_S
from tests.unit.cluster.live.http_calls import AUTHORIZED, call

PAGE = b"the page"


def drip(connected: socket.socket, until_s: float) -> None:
    while time.monotonic() < until_s:
        connected.sendall(b"P")
        time.sleep(0.01)


@pytest.fixture
def served() -> Iterator[ServedPage]:
    with page_served(PAGE) as made:
        yield made


def address(served: ServedPage) -> str:
    return f"127.0.0.1:{served.door.listener.getsockname()[1]}"


def answer(served: ServedPage, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address(served), timeout=10)
    connection.request(method, path, headers={"Host": address(served), **headers})
    found = connection.getresponse()
    assert found.headers["Connection"] == "close"
    return found.status, found.read()


def test_on_this_machine_it_gives_the_page_and_the_status(served: ServedPage) -> None:
    assert served.url == f"http://{address(served)}/"
    assert answer(served, "/") == (200, PAGE)
    assert answer(served, "/v1/status") == (200, b"{}\n")
    port = address(served).partition(":")[2]
    assert answer(served, "/", Host=f"localhost:{port}")[0] == 200


def test_it_gives_nothing_else_and_nothing_to_other_names(served: ServedPage) -> None:
    for path in ("/../token", "/v1/jobs", "/v1/events", "/metrics", "/openapi.json"):
        assert answer(served, path, **AUTHORIZED)[0] == 404
    for method in ("POST", "PUT", "DELETE"):
        assert answer(served, "/v1/status", method)[0] == 405
    for name in ("example.org", "127.0.0.1", "localhost:1", ""):
        status, said = answer(served, "/v1/status", Host=name)
        assert status == 403
        assert f"this is {address(served)} or localhost:" in json.loads(said)["refused"]


def test_elsewhere_it_shows_nothing_without_the_token() -> None:
    with page_served(PAGE, host="0.0.0.0") as served:
        assert served.door.is_open
        assert served.url == f"https://{socket.gethostname()}:{address(served).partition(':')[2]}/"
        for host in (address(served), f"localhost:{address(served).partition(':')[2]}"):
            page = call(host, "/", headers={"Host": "a.name.of.this.machine"})
            assert (page.status, page.body) == (200, PAGE.decode())
            assert call(host, "/v1/status", headers={}).status == 401
            assert call(host, "/v1/status").body == {}
        with pytest.raises((OSError, http.client.HTTPException)):
            answer(served, "/")  # not within TLS


def test_a_place_that_is_taken_is_said(served: ServedPage) -> None:
    with pytest.raises(HocketError, match=f"the page: cannot listen at {address(served)}: Address already"):
        page_door(*split_address(address(served)), PAGE, served.backend)


def test_what_travels_is_under_500_kilobytes() -> None:
    page = render_live().encode()
    with page_served(page) as served:
        status, packed = answer(served, "/", **{"Accept-Encoding": "gzip, br"})
    assert status == 200
    assert len(packed) < 500_000
    assert gzip.decompress(packed) == page
    assert b'class="made"' not in page  # which would say how the manager was started


def test_so_many_are_served_at_a_time_and_none_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_server._MOST_READERS", 4)
    monkeypatch.setattr("hocket.cluster.live.manager_server._READER_S", 1.0)
    with page_served(b"x" * (1 << 24)) as served, contextlib.ExitStack() as stack:

        def connected() -> socket.socket:
            return stack.enter_context(socket.create_connection(split_address(address(served)), 10))

        silent, drips, _, does_not_read = (connected() for _ in range(4))
        drips.sendall(b"GET / HT")
        does_not_read.sendall(f"GET / HTTP/1.1\r\nHost: {address(served)}\r\n\r\n".encode())
        time.sleep(0.2)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            answer(served, "/v1/status")
        assert served.said == [
            "there are 4 requests for the page at once; others are sent away until some have gone"
        ]
        deadline = time.monotonic() + LIMIT_S
        assert silent.recv(100) == b""
        with pytest.raises(OSError, match=r"Broken pipe|reset by peer"):
            drip(drips, deadline)
        while True:
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                assert answer(served, "/v1/status")[0] == 200
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
