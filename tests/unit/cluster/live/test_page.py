"""The page's server: two documents, to whoever asks it by its own name."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from hocket.cluster.live.page import PageServer


@pytest.fixture
def server() -> Iterator[PageServer]:
    made = PageServer("127.0.0.1", 0, b"the page")
    yield made
    made.close()


def answer(server: PageServer, path: str, method: str = "GET", host: str = "") -> tuple[int, bytes]:
    at = server.url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(at, timeout=10)
    connection.request(method, path, headers={"Host": host or at})
    found = connection.getresponse()
    return found.status, found.read()


def test_it_gives_the_page_and_the_state(server: PageServer) -> None:
    server.state = b'{"jobs": []}'
    assert answer(server, "/") == (200, b"the page")
    assert answer(server, "/state") == (200, b'{"jobs": []}')


def test_it_gives_nothing_else_and_nothing_to_other_names(server: PageServer) -> None:
    assert answer(server, "/../token")[0] == 404
    assert answer(server, "/", method="POST")[0] == 501
    assert answer(server, "/state", host="example.org")[0] == 403
