"""One rank of ``bench predict``: a server or a worker of every row that has one as it.

Processes stay from row to row; each row's groups are its own.
"""

from __future__ import annotations

import gc
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from hocket.bench.accuracy_request import Answer, Orders, Replayed
from hocket.bench.process import run_rank
from hocket.graph import load_plan, load_step
from hocket.runtime.allreduce import Groups
from hocket.runtime.group import Group
from hocket.runtime.replay.messages import traffic_of
from hocket.runtime.replay.servers import serve
from hocket.runtime.replay.worker import replay_with_reductions, replay_with_servers


def main() -> None:
    """Serve the orders in the folder's orders.json; rank 0 leaves answer.json there."""
    folder = Path(sys.argv[1])
    run_rank(partial(_serve, folder), folder)


def _serve(folder: Path) -> None:
    orders = msgspec.json.decode((folder / "orders.json").read_bytes(), type=Orders)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=orders.wait_s))
    ends_s = []
    for number, row in enumerate(orders.rows):
        _say(f"row {number + 1} of {len(orders.rows)}: {_named(row)}")
        own = _take_part(orders, row, number, folder)
        # Connections of this row end with the groups, which hold each other in circles.
        gc.collect()
        everybody: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, own)
        ends_s.append([ends for ends in everybody if ends])
    if dist.get_rank() == 0:
        (folder / "answer.json").write_bytes(msgspec.json.encode(Answer(ends_s=ends_s)))
    dist.destroy_process_group()


def _take_part(orders: Orders, row: Replayed, number: int, folder: Path) -> list[float]:
    """Play this rank's part in ``row``; when its steps ended, empty for one without."""
    asked, rank = row.configuration, dist.get_rank()
    graph, plan = load_step(folder / row.graph), load_plan(folder / row.plan)
    first_worker = orders.most_servers
    worker = rank - first_worker
    timeout = timedelta(seconds=orders.wait_s)
    if asked.architecture == "allreduce":
        if not 0 <= worker < asked.workers:
            return []
        ranks = range(first_worker, first_worker + asked.workers)
        names = ("transfers", "urgent", "choices")
        groups = Groups(*(Group(ranks, f"replay/{number}/{name}", timeout) for name in names))
        return replay_with_reductions(
            graph,
            plan,
            groups,
            worker=worker,
            steps=orders.num_steps,
            seed=orders.seed,
            timeout_s=orders.wait_s,
        )

    def pair(worker: int, server: int) -> Group:
        return Group([server, first_worker + worker], f"replay/{number}/{worker}-{server}", timeout)

    traffic = traffic_of(plan, graph, asked.servers, drawn_anew=row.drawn_anew, seed=orders.seed)
    if rank < asked.servers:
        pairs = [pair(worker, rank) for worker in range(asked.workers)]
        serve(
            rank,
            pairs,
            traffic,
            steps=orders.num_steps,
            synchronous=asked.mode == "sync",
            timeout_s=orders.wait_s,
        )
    elif 0 <= worker < asked.workers:
        compute_s = float(graph.durations_s.sum(axis=0).mean())
        return replay_with_servers(
            graph,
            plan,
            [pair(worker, server) for server in range(asked.servers)],
            traffic,
            worker=worker,
            steps=orders.num_steps,
            # Workers that began together would stay together for hundreds of steps.
            delay_s=compute_s * worker / asked.workers if asked.mode == "async" else 0.0,
            seed=orders.seed,
            timeout_s=orders.wait_s,
        )
    return []


def _named(row: Replayed) -> str:
    asked = row.configuration
    servers = f", {asked.servers} servers" if asked.servers else ""
    return f"{asked.step}, {asked.policy}, {asked.mode}, {asked.workers} workers{servers}"


def _say(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
