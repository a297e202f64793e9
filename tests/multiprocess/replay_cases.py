"""Replays on real processes: servers first, then workers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from hocket.graph import Plan
from hocket.network import Network
from hocket.planner import POLICIES, plan
from hocket.runtime.allreduce import Groups
from hocket.runtime.group import Group
from hocket.runtime.replay.messages import traffic_of
from hocket.runtime.replay.servers import serve
from hocket.runtime.replay.worker import replay_with_reductions, replay_with_servers
from tests.unit.runtime.test_replay import graph_of

SECONDS = 0.002  # of each of the six operations
TIMEOUT = timedelta(seconds=30)


def planned(policy: str, world: int) -> Plan:
    return plan(graph_of(SECONDS), Network(num_workers=world), policy)


def with_servers(
    rank: int, world: int, servers: int, policy: str, synchronous: bool, steps: int
) -> list[float]:
    graph, workers = graph_of(SECONDS), world - servers
    drawn_anew = POLICIES[policy].drawn_anew
    traffic = traffic_of(planned(policy, workers), graph, servers, drawn_anew=drawn_anew, seed=1)

    def pair(worker: int, server: int) -> Group:
        return Group([server, servers + worker], f"{worker}-{server}", TIMEOUT)

    if rank < servers:
        pairs = [pair(worker, rank) for worker in range(workers)]
        serve(rank, pairs, traffic, steps=steps, synchronous=synchronous, timeout_s=30.0)
        return []
    worker = rank - servers
    return replay_with_servers(
        graph,
        planned(policy, workers),
        [pair(worker, server) for server in range(servers)],
        traffic,
        worker=worker,
        steps=steps,
        # The second one computes long after the first has begun.
        delay_s=0.2 * worker,
    )


def with_reductions(rank: int, world: int, policy: str, steps: int) -> list[float]:
    groups = Groups(*(Group(range(world), name, TIMEOUT) for name in ("transfers", "urgent", "choices")))
    return replay_with_reductions(graph_of(SECONDS), planned(policy, world), groups, worker=rank, steps=steps)


def gone(rank: int, world: int) -> Any:
    """A server that leaves in the middle of a replay."""
    graph = graph_of(SECONDS)
    traffic = traffic_of(planned("fifo", 1), graph, 1, drawn_anew=False, seed=1)
    pair = Group([0, 1], "pair", timedelta(seconds=3))
    if rank == 0:
        serve(0, [pair], traffic, steps=1, synchronous=False, timeout_s=3.0)
        return ""
    try:
        replay_with_servers(graph, planned("fifo", 1), [pair], traffic, worker=0, steps=2, timeout_s=3.0)
    except Exception as error:
        dist.destroy_process_group()
        return f"{type(error).__name__}: {error}"
