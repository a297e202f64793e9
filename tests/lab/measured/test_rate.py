"""The rate holds for what leaves a node and for what reaches it."""

from __future__ import annotations

import json
import sys

import pytest

from hocket.lab import Lab

pytestmark = pytest.mark.slow

RATE_BPS = 100e6
SIZE_BYTES = 4_000_000

# Each pair is a sender and a receiver; receivers print when all that they get begins and
# ends, and when the last from each address does.
TRANSFER = """
import json, os, socket, sys, threading, time
pairs, size, rank = json.loads(sys.argv[1]), int(sys.argv[2]), int(os.environ["RANK"])
times, ends = [], {}
def receive(connection):
    left = size
    while left:
        left -= len(connection.recv(min(left, 1 << 18)))
        times.append(time.monotonic())
    ends[connection.getpeername()[0]] = times[-1]
    connection.sendall(b"!")
def connected(receiver):
    while True:
        try:
            return socket.create_connection((f"10.77.0.{receiver + 1}", 4711), timeout=20)
        except OSError:
            time.sleep(0.05)
def send(connection):
    connection.sendall(bytes(size))
    connection.recv(1)
# Nobody sends before everybody is there: a link that waits for a process is idle.
going = [connected(b) for a, b in pairs if a == rank]
coming = []
if any(b == rank for a, b in pairs):
    with socket.create_server(("", 4711)) as server:
        server.settimeout(20)
        coming = [server.accept()[0] for a, b in pairs if b == rank]
for connection in coming:
    connection.sendall(b"!")
for connection in going:
    connection.recv(1)
work = [threading.Thread(target=receive, args=[each]) for each in coming]
work += [threading.Thread(target=send, args=[each]) for each in going]
for thread in work:
    thread.start()
for thread in work:
    thread.join()
if times:
    print(json.dumps([times[0], times[-1], ends]))
"""


@pytest.mark.parametrize(
    ("pairs", "tso_bytes"),
    [
        ([(0, 1)], None),
        ([(1, 0)], None),
        ([(0, 1), (0, 2)], None),
        ([(1, 0), (2, 0)], None),
        ([(0, 1)], 65_536),
    ],
    ids=["there", "back", "one to two", "two to one", "in large packets"],
)
def test_the_rate_is_the_rate(name: str, pairs: list[tuple[int, int]], tso_bytes: int | None) -> None:
    with Lab(nodes=3, rate_bps=RATE_BPS, name=name, tso_bytes=tso_bytes) as lab:
        ranks = lab.run_all(
            [sys.executable, "-IS", "-c", TRANSFER, json.dumps(pairs), str(SIZE_BYTES)], timeout_s=60.0
        )
    assert [rank.stderr for rank in ranks] == ["", "", ""]
    # One machine, one clock.
    times = [json.loads(rank.stdout) for rank in ranks if rank.stdout]
    duration_s = max(end for _, end, _ in times) - min(begin for begin, _, _ in times)
    # Above the rate is only what a link that was idle lets through at once: half a millisecond of a third of
    # a second, or one large packet.
    assert 0.7 < len(pairs) * SIZE_BYTES * 8 / duration_s / RATE_BPS < 1.05


def test_what_travels_one_way_does_not_slow_down_what_travels_the_other(name: str) -> None:
    """Three send to node 0, which sends to a fourth; what that acknowledges shares a link with the three."""
    pairs = [(1, 0), (2, 0), (3, 0), (0, 4)]
    with Lab(nodes=5, rate_bps=RATE_BPS, name=name) as lab:
        ranks = lab.run_all(
            [sys.executable, "-IS", "-c", TRANSFER, json.dumps(pairs), str(SIZE_BYTES)], timeout_s=60.0
        )
    assert [rank.stderr for rank in ranks] == [""] * 5
    for receiver, transfers in ((0, 3), (4, 1)):
        first_s, last_s, _ = json.loads(ranks[receiver].stdout)
        assert 0.7 < transfers * SIZE_BYTES * 8 / (last_s - first_s) / RATE_BPS < 1.05


@pytest.mark.parametrize("ahead", [(1, 2), (2, 1)], ids=["three and one", "one and three"])
def test_peers_share_a_link_evenly_however_many_connections_each_has(
    name: str, ahead: tuple[int, int]
) -> None:
    """While one sends once, the other, three times at once, sends as much; the rest has the link alone."""
    many, single = ahead
    pairs = [(many, 0)] * 3 + [(single, 0)]
    with Lab(nodes=3, rate_bps=RATE_BPS, name=name) as lab:
        ranks = lab.run_all(
            [sys.executable, "-IS", "-c", TRANSFER, json.dumps(pairs), str(SIZE_BYTES)], timeout_s=60.0
        )
    assert [rank.stderr for rank in ranks] == [""] * 3
    first_s, last_s, ends = json.loads(ranks[0].stdout)
    alone = ends[f"10.77.0.{single + 1}"]
    assert ends[f"10.77.0.{many + 1}"] == last_s
    # Four connections that share evenly would all end at the end.
    assert 0.4 < (alone - first_s) / (last_s - first_s) < 0.6


AT_ONCE = """
import os, socket, sys, time
size = int(sys.argv[1])
if os.environ["RANK"] == "0":
    with socket.create_server(("", 4711)) as server:
        server.settimeout(20)
        connection = server.accept()[0]
    while size:
        size -= len(connection.recv(size))
    print(time.monotonic())
    connection.sendall(b"!")
else:
    for _ in range(400):
        try:
            connection = socket.create_connection(("10.77.0.1", 4711), timeout=20)
            break
        except OSError:
            time.sleep(0.05)
    time.sleep(0.2)
    print(time.monotonic())
    connection.sendall(bytes(size))
    connection.recv(1)
"""


def test_a_link_that_was_idle_lets_little_through_at_once(name: str) -> None:
    size = 60_000  # TCP would hand it over as one packet
    with Lab(nodes=2, rate_bps=RATE_BPS, name=name) as lab:
        ranks = lab.run_all([sys.executable, "-IS", "-c", AT_ONCE, str(size)], timeout_s=60.0)
    assert [rank.stderr for rank in ranks] == ["", ""]
    end_s, begin_s = (float(rank.stdout) for rank in ranks)
    assert end_s - begin_s > 0.8 * size * 8 / RATE_BPS
