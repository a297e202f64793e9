"""What ranks find in their environment: all that a user expects, and nothing that commands the cluster."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.live.nodes import LocalNode
from hocket.cluster.live.ray_nodes import RankActor
from tests.unit.cluster.live.clusters import LIMIT_S, live_job, running

OURS = {
    "HOCKET_CLUSTER_TOKEN": "what commands have to know",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "what opens every Ray node",
    "RAY_AUTH_TOKEN_PATH": "/where/that/is",
    "RAY_REDIS_PASSWORD": "what opens Ray's store",
    "RAY_RUNTIME_ENV_BEARER_TOKEN": "what opens Ray's downloads",
}
THEIRS = {"HOCKET_GATE_TOKEN": "of the job's own", "CUDA_VISIBLE_DEVICES": "0", "RANK": "0"}
USERS = {"HOCKET_TEST": "a user's own", "RAY_ADDRESS": "a user's cluster"}
# A rank's own environment, and that of the process that watches it.
SHOW = "cat /proc/$$/environ > mine; cat /proc/$PPID/environ > guard"

Start = Callable[[Path, list[str], Mapping[str, str]], Callable[[], dict[str, int | None]]]


def environment(path: Path) -> dict[str, str]:
    parts = (each.partition("=") for each in path.read_text().split("\0"))
    return {name: value for name, _, value in parts}


class AsALab:
    """Executes commands as a lab does, which gives them its own process's environment."""

    address = "127.0.0.1"
    namespace, interface = "/", "lo"  # where every machine has something

    def lack(self, _place: Any) -> str:
        return "lab 'red' is not up"

    def command(
        self, _place: Any, argv: list[str], env: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        return argv, {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", **env}


def local(folder: Path, command: list[str], told: Mapping[str, str], lab: Any = None) -> Callable[[], Any]:
    node = LocalNode("node0", folder / "node0", lab, lab)
    asyncio.run(node.start("1-1-0", command, told, str(folder)))
    return lambda: asyncio.run(node.conditions())


def in_a_lab(folder: Path, command: list[str], told: Mapping[str, str]) -> Callable[[], Any]:
    return local(folder, command, told, AsALab())


def actor(folder: Path, command: list[str], told: Mapping[str, str]) -> Callable[[], Any]:
    made = RankActor(str(folder / "node0"))
    assert made.start("1-1-0", command, dict(told), str(folder)) == ""
    return made.conditions


@pytest.mark.parametrize("start", [local, in_a_lab, actor])
def test_ranks_inherit_all_but_what_commands_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    for name, value in {**OURS, **USERS}.items():
        monkeypatch.setenv(name, value)
    conditions = start(tmp_path, ["sh", "-c", SHOW], THEIRS)
    deadline = time.monotonic() + LIMIT_S
    while (found := conditions()) == {"1-1-0": None}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert found == {"1-1-0": 0}
    for name in ("mine", "guard"):
        seen = environment(tmp_path / name)
        assert not OURS.keys() & seen.keys()
        assert seen.items() >= {**THEIRS, **USERS}.items()
        assert seen["PATH"] == os.environ["PATH"]


def test_what_a_job_keeps_is_its_owners_alone(tmp_path: Path) -> None:
    job = live_job("a", command=("sh", "-c", "cp /proc/self/environ $HOCKET_CHECKPOINT/told"))
    with running(tmp_path, [job], servers=1) as cluster:
        record = cluster.join()["a"]
    assert (record.state, record.attempt) == ("finished", 1)
    kept = tmp_path / "jobs" / "1"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    told = environment(kept / "told")
    assert told["HOCKET_GATE_ATTEMPT"] == "1-1"
    assert len(told["HOCKET_GATE_TOKEN"]) == 64
