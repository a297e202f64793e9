"""A replayed job's ring: it waits for its own, and not for ever."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from hocket.launch.control import TransportError
from hocket.launch.traffic import Ring
from tests.tokens import CREDENTIALS


def test_strangers_do_not_hold_up_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.launch.traffic._MEET_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        here = unused.getsockname()
    ended = threading.Event()

    def knock() -> None:
        while not ended.wait(0.01):  # slowly enough for all of them to be heard
            with contextlib.suppress(OSError), socket.create_connection(here, 1.0):
                pass

    strangers = threading.Thread(target=knock)
    strangers.start()
    try:
        with pytest.raises((TransportError, TimeoutError)):
            Ring([f"127.0.0.1:{here[1]}", "127.0.0.1:1"], 0, CREDENTIALS)
    finally:
        ended.set()
        strangers.join()
