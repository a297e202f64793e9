"""Commands that reach a manager's address and get no answer there."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from hocket.cluster.live.manager_address import Contact, ask_manager
from hocket.cluster.live.manager_messages import AskStatus
from hocket.errors import HocketError
from hocket.launch.control import Connection
from hocket.launch.tls import server_context
from tests.tokens import CREDENTIALS, TOKEN
from tests.unit.cluster.live.clusters import LIMIT_S


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """The address of a process that takes each connection so."""
    with contextlib.ExitStack() as at_end, socket.create_server(("127.0.0.1", 0)) as listener:

        def work() -> None:
            with contextlib.suppress(OSError):  # it is shut down
                while True:
                    connected = at_end.enter_context(listener.accept()[0])
                    with contextlib.suppress(OSError):  # the caller has gone
                        serve(connected)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def shake_hands(connected: socket.socket) -> Connection:
    connection = Connection(connected)
    connection.secure(server_context(CREDENTIALS.served), server_side=True)
    return connection


def hang_up_before_the_answer(connected: socket.socket) -> None:
    connection = shake_hands(connected)
    connection.read(1)
    connection.close()


@pytest.mark.parametrize(
    ("serve", "said"),
    [
        (lambda _: None, "it did not say who it is within 0.2 s"),
        (socket.socket.close, "its connection was closed at once (the other side hung up)"),
        (hang_up_before_the_answer, "its connection ended (Remote end closed connection without response)"),
        (shake_hands, "it did not answer within 0.3 s"),
    ],
)
def test_a_manager_that_does_not_answer_is_to_be_asked_again(
    serve: Callable[[socket.socket], object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.launch.control.HANDSHAKE_S", 0.2 if "0.2" in said else LIMIT_S)
    monkeypatch.setattr("hocket.cluster.live.manager_address._CONNECT_S", 0.5)
    monkeypatch.setattr("hocket.cluster.live.manager_address._ANSWER_S", 0.3 if "0.3" in said else LIMIT_S)
    with listening(serve) as address, pytest.raises(HocketError) as refused:
        ask_manager(Contact(address=address, token=TOKEN), AskStatus())
    assert str(refused.value) == (
        f"the cluster's manager at {address}: {said}; it is busy, hangs or is about to end: try again"
    )
