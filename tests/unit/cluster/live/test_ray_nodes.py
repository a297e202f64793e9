"""Ranks on the nodes of a Ray cluster, which is one of this machine."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.live.manager import Manager
from hocket.cluster.live.ray_nodes import RayNode, ray_nodes
from hocket.executors import ray_cluster
from tests.tokens import CREDENTIALS, TOKEN
from tests.unit.cluster.live.clusters import Running, live_job

pytest.importorskip("ray")

PROGRAM = "import sys, time; print('begun', flush=True); time.sleep(float(sys.argv[1])); raise SystemExit(4)"


@pytest.mark.long
def test_jobs_run_and_actors_that_die_lose_none(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with ray_cluster() as ray:
        nodes = ray_nodes(ray, tmp_path, 2)
        assert [(node.shares_files, node.here) for node in nodes] == [(True, True)] * 2
        first = nodes[0]
        assert isinstance(first, RayNode)

        async def survives() -> None:
            await first.start("1-1-0", [sys.executable, "-c", PROGRAM, "4"], {}, str(tmp_path))
            while await first.output("1-1-0") != "begun\n":
                await asyncio.sleep(0.1)
            assert await first.conditions() == {"1-1-0": None}
            ray.kill(first._actor, no_restart=False)
            deadline = time.monotonic() + 60
            while (found := await first.conditions()) == {"1-1-0": None}:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            assert found == {"1-1-0": 4}
            assert await first.output("1-1-0") == "begun\n"
            await first.forget("1-1-0")
            assert await first.conditions() == {}

        asyncio.run(survives())
        cluster = Cluster(num_servers=2, gpus_per_server=2)
        scheduling = Scheduling(placement="ls", policy="srpt")
        manager = Manager(tmp_path, cluster, nodes, scheduling, credentials=CREDENTIALS)
        running = Running(manager, nodes)
        running.open([live_job("wide", 4), live_job("alone")], until_idle=True)
        records = running.join()
        assert {(r.state, r.attempt) for r in records.values()} == {("finished", 1)}
