"""One rank of ``bench predict``: a server or a worker of every row that has one as it.

Processes stay from row to row; each row's groups are its own.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from hocket.bench.host_noise import least_stolen, stolen_s
from hocket.bench.rank_process import run_rank
from hocket.bench.replay.accuracy_request import Orders, Replayed, ReplayedRow, ReplayedRows
from hocket.graph import Plan, load_plan, load_step
from hocket.launch import Rule, ServedJob
from hocket.launch.credentials import new_credentials
from hocket.ports import free_port
from hocket.runtime.replay.servers import serve
from hocket.runtime.replay.worker import Replay, ReplayRounds, replay_with_reductions, replay_with_servers
from hocket.runtime.transfers.channel_groups import ChannelGroups
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_value, gather_values, max_over_ranks

_MOST_STOLEN = 0.02  # replays sleep: a process that wakes late delays them, however rarely


def main() -> None:
    """Serve the orders in the folder's orders.json; rank 0 leaves answer.json there."""
    folder = Path(sys.argv[1])
    run_rank(partial(_serve, folder), folder)


def _serve(folder: Path) -> None:
    orders = msgspec.json.decode((folder / "orders.json").read_bytes(), type=Orders)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=orders.wait_s))
    ranks, timeout = range(dist.get_world_size()), timedelta(seconds=orders.wait_s)
    everybody = GlooGroup(ranks, "replay/everybody", timeout)
    rows = []
    for number, row in enumerate(orders.rows):
        _say(f"row {number + 1} of {len(orders.rows)}: {_named(row)}")
        rows.append(_least_disturbed(orders, row, number, folder, everybody))
    if dist.get_rank() == 0:
        (folder / "answer.json").write_bytes(msgspec.json.encode(ReplayedRows(rows=rows)))
    dist.destroy_process_group()


def _least_disturbed(
    orders: Orders, row: Replayed, number: int, folder: Path, everybody: GlooGroup
) -> ReplayedRow:
    """Replay ``row``, again while other machines take this one's processors; all ranks find the same."""
    tries = count()
    return least_stolen(
        lambda: _replayed(orders, row, f"{number}/{next(tries)}", folder, everybody),
        lambda replayed: replayed.stolen,
        _MOST_STOLEN,
    )


class _Own(msgspec.Struct, frozen=True):
    """The result of one worker's replay; ``stolen``: of its processor, by other machines."""

    replay: Replay
    stolen: float


def _replayed(orders: Orders, row: Replayed, name: str, folder: Path, everybody: GlooGroup) -> ReplayedRow:
    """Replay ``row`` once with all other ranks; ``name``: of its groups."""
    stolen_before_s, began_s = stolen_s(), time.perf_counter()
    own = _take_part(orders, row, name, folder, everybody)
    stolen = (stolen_s() - stolen_before_s) / (time.perf_counter() - began_s)
    # Connections of this row end with what holds them, in circles.
    gc.collect()
    # Of the workers: who has no part in the row has no time in which anything could be stolen.
    mine = [] if own is None else [_Own(own, stolen)]
    workers = [each for some in gather_values(mine, everybody, list[_Own]) for each in some]
    return ReplayedRow(
        ends_s=[list(each) for each in zip(*(worker.replay.ends_s for worker in workers), strict=True)],
        out_of_order=max(worker.replay.out_of_order for worker in workers),
        stolen=max(worker.stolen for worker in workers),
    )


def _take_part(orders: Orders, row: Replayed, name: str, folder: Path, everybody: GlooGroup) -> Replay | None:
    """Play this rank's part in ``row``; None for one that is no worker in it."""
    asked, worker = row.configuration, dist.get_rank() - orders.most_servers
    graph, plan = load_step(folder / row.graph), load_plan(folder / row.plan)
    works = 0 <= worker < asked.workers
    workers = range(orders.most_servers, orders.most_servers + asked.workers)
    timeout = timedelta(seconds=orders.wait_s)
    if asked.architecture == "allreduce":
        if not works:
            return None
        uses = ("transfers", "urgent", "choices")
        groups = ChannelGroups(*(GlooGroup(workers, f"replay/{name}/{use}", timeout) for use in uses))
        return replay_with_reductions(
            graph,
            plan,
            groups,
            worker=worker,
            steps=orders.num_steps,
            seed=row.seed,
            timeout_s=orders.wait_s,
        )
    job = _job(orders, row, plan, everybody)
    if dist.get_rank() < asked.servers:
        serve(job, dist.get_rank())
    if not works:
        return None
    meeting = GlooGroup(workers, f"replay/{name}/begin", timeout)
    return replay_with_servers(
        graph,
        plan,
        job,
        ReplayRounds(
            steps=orders.num_steps,
            delays_s=[begins_s[worker] for begins_s in row.begins_s],
            # A worker that joins or gets its initial values late would begin late, which predictions do not
            # know.
            together=lambda: max_over_ranks([time.perf_counter()], meeting)[0],
        ),
        worker=worker,
        drawn_anew=row.drawn_anew,
        seed=row.seed,
    )


def _job(orders: Orders, row: Replayed, plan: Plan, everybody: GlooGroup) -> ServedJob:
    """The row's job, which the first rank, where server 0 is, tells all others."""
    asked = row.configuration
    told = ""
    if dist.get_rank() == 0:
        host = os.environ["MASTER_ADDR"]
        job = ServedJob(
            # Not handed on as a socket: workers would reach it long before the server can answer.
            address=f"{host}:{free_port(host)}",
            token=new_credentials().text,
            rule=Rule(mode=asked.mode, workers=asked.workers, barrier=plan.barrier),
            transport=asked.transport,
            window_bytes=orders.window_bytes,
            servers=asked.servers,
            timeout_s=orders.wait_s,
            seed=row.seed,
        )
        told = job.encoded()
    return msgspec.json.decode(broadcast_value(told, everybody, str), type=ServedJob)


def _named(row: Replayed) -> str:
    asked = row.configuration
    servers = f", {asked.servers} servers" if asked.servers else ""
    transport = ", gRPC" if asked.transport == "grpc" else ""
    return f"{asked.step}, {asked.policy}, {asked.mode}, {asked.workers} workers{servers}{transport}"


def _say(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
