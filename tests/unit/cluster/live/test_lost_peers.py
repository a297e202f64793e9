"""Ranks that lose their connection with a peer: the network's fault, unless a peer had failed before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hocket.launch.lost_peers import LOST_PEER
from tests.unit.cluster.live.clusters import live_job, running
from tests.unit.cluster.live.test_reasons import why

LINE = "hocket: lost its connection to rank 1 on node1: Connection timed out"
LOST = f"echo '{LINE}'; exit {LOST_PEER}"
SEEN = "rank 0 on node0 lost its connection to rank 1 on node1: Connection timed out"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cluster.live.attempt_endings._RETRY_S", 0.05)


def shell(program: str) -> tuple[str, str, str]:
    return "sh", "-c", program


def test_a_job_that_lost_a_connection_is_tried_again_and_has_not_failed_by_itself(tmp_path: Path) -> None:
    program = f"if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then {LOST}; fi"
    with running(tmp_path, [live_job("a", command=shell(program))], restarts=1) as cluster:
        record = cluster.join()["a"]
    assert (record.state, record.attempt, record.own_failures) == ("finished", 2, 0)
    assert [each.why for each in record.tried] == [SEEN]


def test_lost_connections_use_up_the_restarts_of_the_cluster(tmp_path: Path) -> None:
    job = live_job("a", command=shell(LOST), restarts=7)
    with running(tmp_path, [job], restarts=1, until_idle=False) as cluster:
        record = cluster.until(lambda s: s.jobs[0].state == "failed").jobs[0]
        assert record.attempt == 2
        assert why(cluster, "a") == f"a: failed in attempt 2, the last one that it has: {SEEN}"


@pytest.mark.parametrize(
    ("peer", "own_failures", "said"),
    [
        ("sleep 0.3; echo no data; exit 1", 1, "rank 1 on node0 ended with status 1: no data"),
        ("sleep 0.3; kill -KILL $$", 0, "rank 1 on node0 was killed by SIGKILL"),
        ("sleep 100", 0, SEEN),
    ],
)
def test_a_peer_that_failed_or_was_killed_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: str, own_failures: int, said: str
) -> None:
    if peer == "sleep 100":
        monkeypatch.setattr("hocket.cluster.live.attempts._PEERS_SETTLE_S", 0.2)
    job = live_job("a", 2, command=shell(f"if [ $RANK = 1 ]; then {peer}; fi; {LOST}"))
    with running(tmp_path, [job], servers=1, restarts=0) as cluster:
        record = cluster.join()["a"]
    assert (record.state, record.attempt, record.own_failures) == ("failed", 1, own_failures)
    assert record.why == said


@pytest.mark.parametrize(
    "program", [f"exit {LOST_PEER}", f"echo {LINE!r}; exit 1", f"echo tired; exit {LOST_PEER}"]
)
def test_the_status_of_a_program_that_says_nothing_of_a_peer_is_its_own(tmp_path: Path, program: str) -> None:
    with running(tmp_path, [live_job("a", command=shell(program))], restarts=1) as cluster:
        record = cluster.join()["a"]
    assert (record.state, record.attempt, record.own_failures) == ("failed", 1, 1)


# Its other rank, or its first attempt, has all that it needs to know.
TRAINING = """
import os, socket, stat, sys, time
import torch, torch.distributed as dist
import hocket

def lose_network():
    "Break all TCP connections of this process, as a link that is down for long does."
    for name in os.listdir("/proc/self/fd"):
        try:
            connected = socket.socket(fileno=os.dup(int(name)))
            listens = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if connected.family in (socket.AF_INET, socket.AF_INET6) and not listens:
                connected.shutdown(socket.SHUT_RDWR)
            connected.close()
        except OSError:
            pass

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = hocket.distribute(model, optimizer, plan="ddp")
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
for step in range(8):
    if first and step == 5 and dist.get_rank() == 1:
        if sys.argv[1] == "network":
            lose_network()
        else:
            raise ValueError("no data")
    optimizer.zero_grad()
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
model.hocket.flush()
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["network", "data"])
def test_a_program_that_is_distributed_tells_a_lost_connection_from_its_own_failure(
    tmp_path: Path, lost: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    job = live_job("a", 2, iterations=8, command=(sys.executable, str(script), lost))
    with running(tmp_path, [job], gpus=1, restarts=1) as cluster:
        record = cluster.join(120.0)["a"]
    if lost == "network":
        assert (record.state, record.attempt, record.own_failures) == ("finished", 2, 0)
        assert "lost a connection: training stopped: " in record.tried[0].why
    else:
        assert (record.state, record.attempt, record.own_failures) == ("failed", 1, 1)
        assert record.why.startswith("rank 1 on node1 ended with status 1: ")
        assert record.why.endswith("ValueError: no data")
