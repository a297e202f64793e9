"""The transport: messages of the length that is expected, and an error for whatever else comes."""

from __future__ import annotations

import threading

import pytest
import torch

from hocket.runtime.ps.gloo import GlooTransport, Meeting
from hocket.runtime.ps.transport import BULK, FIRST_FRAME, Header, Kind, TransportError

Ends = tuple[GlooTransport, GlooTransport]


def connected(timeout_s: float = 10.0) -> Ends:
    meetings: list[Meeting] = []
    meetings.append(Meeting(lambda key, value: meetings[1].put(key, value), timeout_s))
    meetings.append(Meeting(lambda key, value: meetings[0].put(key, value), timeout_s))
    ends: dict[int, GlooTransport] = {}

    def make(rank: int) -> None:
        ends[rank] = GlooTransport(meetings[rank], rank, "127.0.0.1", timeout_s)

    threads = [threading.Thread(target=make, args=[rank]) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return ends[0], ends[1]


@pytest.fixture
def ends() -> Ends:
    return connected()


def message(length: int, tag: int = FIRST_FRAME) -> tuple[Header, torch.Tensor]:
    payload = torch.arange(length, dtype=torch.int64).to(torch.uint8)
    return Header(kind=Kind.PUSH, tag=tag, label=3, length=length), payload


def test_messages_arrive_in_their_buffers_whatever_the_order_of_tags(ends: Ends) -> None:
    sender, receiver = ends
    buffers = {FIRST_FRAME + k: torch.zeros(100 * k + 1, dtype=torch.uint8) for k in range(4)}
    for tag, buffer in buffers.items():
        receiver.expect(tag, buffer)
    order = [FIRST_FRAME + k for k in (2, 0, 3, 1)]

    def send() -> None:
        for tag in order:
            sender.send(*message(buffers[tag].numel(), tag))
        sender.send(Header(kind=Kind.VALUES, tag=BULK, length=7), torch.full((7,), 9, dtype=torch.uint8))
        sender.send(Header(kind=Kind.END))

    thread = threading.Thread(target=send)
    thread.start()
    for tag in order:
        header, payload = receiver.receive()
        assert (header.tag, header.label) == (tag, 3)
        assert payload is buffers[tag]
        assert torch.equal(payload, message(len(payload))[1])
    _, values = receiver.receive()
    assert values is not None
    assert values.tolist() == [9] * 7
    assert receiver.receive() == (Header(kind=Kind.END), None)
    thread.join(10)


def test_a_message_of_another_length_is_refused(ends: Ends) -> None:
    sender, receiver = ends
    receiver.expect(FIRST_FRAME, torch.zeros(10, dtype=torch.uint8))
    threading.Thread(target=lambda: sender.send(Header(kind=Kind.PUSH, tag=FIRST_FRAME, length=12))).start()
    with pytest.raises(TransportError, match="has 12 bytes where 10 are expected"):
        receiver.receive()


def test_a_message_that_nobody_expects_is_an_error_after_the_timeout() -> None:
    sender, receiver = connected(timeout_s=0.5)
    threading.Thread(target=lambda: sender.send(Header(kind=Kind.PUSH, tag=77, length=12))).start()
    with pytest.raises(TransportError, match="nobody here expects message 77"):
        receiver.receive()


def test_a_peer_that_does_not_come_is_an_error_after_the_timeout() -> None:
    with pytest.raises(TransportError, match="did not say where it is"):
        GlooTransport(Meeting(lambda *_: None, 0.2), 0, "127.0.0.1", 0.2)


def test_a_peer_that_is_known_to_be_lost_is_not_waited_for() -> None:
    meeting = Meeting(lambda *_: None, 30.0)
    meeting.fail("its connection was closed")
    with pytest.raises(TransportError, match="its connection was closed"):
        GlooTransport(meeting, 0, "127.0.0.1", 30.0)
