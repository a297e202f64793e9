"""Callers without a token, thousands of them: no traceback, no more memory, and jobs go on."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.launch import Rule
from hocket.launch.job import split_address
from hocket.ports import free_port
from tests.multiprocess.launch import ROOT
from tests.multiprocess.serving_setups import OPTIMIZERS, Layers, made, step
from tests.multiprocess.setups import batch
from tests.serving import served, wait_until
from tests.strangers import resident_bytes, strangers
from tests.tokens import TOKEN
from tests.unit.cluster.live.clusters import live_job, running
from tests.unit.cluster.live.test_manager import events

pytestmark = pytest.mark.slow

_GROWTH_BYTES = 32 << 20
COUNTS = [400, 10_000]


@pytest.mark.parametrize("count", COUNTS)
def test_a_manager_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int) -> None:
    jobs = [live_job("a", 2, iterations=100), live_job("late", arrival_s=5.0)]
    with running(tmp_path, jobs, until_idle=False) as cluster:
        address = split_address(cluster.manager.address)
        with strangers(address, 800) as join:  # every place has been taken once
            join()
        before = resident_bytes()
        with strangers(address, count) as join:
            join()
        assert resident_bytes() < before + _GROWTH_BYTES
        assert cluster.status().nodes
        cluster.until(lambda status: all(job.state == "finished" for job in status.jobs))
    said = [what for _, _, what in events(tmp_path)]
    assert "Traceback" not in capfd.readouterr().err + "".join(said)
    assert len(said) < 200
    assert [what for what in said if "no TLS 1.3" in what]
    assert [what for what in said if "no message of Hocket's" in what]


@pytest.mark.parametrize(
    ("transport", "count"),
    [
        ("gloo", 400),
        ("grpc", 400),
        *(pytest.param(each, 10_000, marks=pytest.mark.long) for each in ("gloo", "grpc")),
    ],
)
def test_servers_go_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any, count: int
) -> None:
    ports: list[int] = []
    if transport == "grpc":
        pytest.importorskip("grpc")
        from hocket.runtime.ps.wire.grpc_transport import GrpcServerEnd

        plain = GrpcServerEnd._start

        async def start(*arguments: Any) -> int:
            ports.append(await plain(*arguments))
            return ports[-1]

        monkeypatch.setattr(GrpcServerEnd, "_start", start)

    def work(worker: int) -> None:
        address = split_address(job.job.address)
        with strangers(address, 200) as join:  # before anybody has joined
            model = made(Layers)
            optimizer = OPTIMIZERS["sgd"](model)
            job.train(worker, model, optimizer)
            step(model, optimizer, *batch(worker, 0))
            join()
        before = resident_bytes()
        with contextlib.ExitStack() as stack:
            joins = [stack.enter_context(strangers(address, count))]
            joins += [stack.enter_context(strangers(("127.0.0.1", port), count)) for port in ports]
            for number in range(1, 6):
                step(model, optimizer, *batch(worker, number))
            for join in joins:
                join()
        step(model, optimizer, *batch(worker, 6))
        assert resident_bytes() < before + _GROWTH_BYTES
        model.hocket.detach()

    with served(Rule(mode="async"), timeout_s=120.0, transport=transport) as job:
        job.on_workers(work, limit_s=280.0)
    assert job.statuses == [0]
    assert bool(ports) == (transport == "grpc")
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert said.count("was refused") < 100
    assert "server 0: 127.0.0.1 was refused: what came is no TLS 1.3" in said


def test_a_server_with_few_files_waits_for_its_workers(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    told = os.environ | {
        **{"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        **{"HOCKET_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "hocket", "train", "--architecture", "ps"]
    command += [str(ROOT / "tests/multiprocess/serving_cases.py"), "parity"]
    few = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *command]
    ranks: list[subprocess.Popen[str]] = []

    def start(rank: int, argv: list[str]) -> None:
        environment = told | {"RANK": str(rank)}
        ranks.append(subprocess.Popen(argv, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True))

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        return False

    try:
        start(0, few)
        wait_until(listens)
        with contextlib.ExitStack() as stack:
            for _ in range(600):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 20.0))
            start(1, command)
            for rank in reversed(ranks):
                _, err = rank.communicate(timeout=120)
                assert rank.returncode == 0, err
        assert "there are 16 connections that have yet to say who they are" in err
        assert "Traceback" not in err
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
