"""Replays on real processes: the servers' ranks first, then the workers'."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import msgspec
import torch.distributed as dist

from hocket.bench.replay.replayed_steps import scaled
from hocket.graph import Plan, StepGraph
from hocket.launch import Rule, ServedJob
from hocket.network import Network
from hocket.planner import POLICIES, plan
from hocket.ports import free_port
from hocket.runtime.replay.servers import serve
from hocket.runtime.replay.worker import Replay, ReplayRounds, replay_with_reductions, replay_with_servers
from hocket.runtime.transfers.channel_groups import ChannelGroups
from hocket.runtime.transfers.gloo_group import GlooGroup, max_over_ranks
from tests.tokens import TOKEN
from tests.unit.runtime.test_replayed_processor import graph_of

STEP_S = 0.012
TIMEOUT_S = 30.0
APART_S = 0.2  # far longer than a step takes


def graph() -> StepGraph:
    return scaled(graph_of(), 1e9, STEP_S / 2, 1.0)


def planned(policy: str, workers: int) -> Plan:
    return plan(graph(), Network(num_workers=workers), policy)


def job_of(rank: int, rule: Rule, servers: int) -> ServedJob:
    told = [""]
    if rank == 0:
        address = f"127.0.0.1:{free_port('127.0.0.1')}"
        job = ServedJob(address=address, token=TOKEN, rule=rule, servers=servers, timeout_s=TIMEOUT_S)
        told = [job.encoded()]
    dist.broadcast_object_list(told)
    return msgspec.json.decode(told[0], type=ServedJob)


def with_servers(
    rank: int, world: int, servers: int, policy: str, mode: Any, steps: int, rounds: int
) -> tuple[Replay, list[float]] | None:
    """A worker's replay, and when it was ready for each round; each one joins later than the one before."""
    workers = world - servers
    job = job_of(rank, Rule(mode=mode, workers=workers), servers)
    if rank < servers:
        serve(job, rank)
        return None
    worker = rank - servers
    meeting = GlooGroup(range(servers, world), "begin", timedelta(seconds=TIMEOUT_S))
    ready_s = []

    def together() -> float:
        ready_s.append(time.perf_counter())
        return max_over_ranks(ready_s[-1:], meeting)[0]

    time.sleep(APART_S * worker)
    replay = replay_with_servers(
        graph(),
        planned(policy, workers),
        job,
        ReplayRounds(steps=steps, delays_s=(APART_S * worker,) * rounds, together=together),
        worker=worker,
        drawn_anew=POLICIES[policy].drawn_anew,
    )
    return replay, ready_s


def with_reductions(rank: int, world: int, policy: str, steps: int) -> Replay:
    timeout = timedelta(seconds=TIMEOUT_S)
    groups = ChannelGroups(
        *(GlooGroup(range(world), name, timeout) for name in ("transfers", "urgent", "choices"))
    )
    return replay_with_reductions(graph(), planned(policy, world), groups, worker=rank, steps=steps)
