"""One rank of a job that replays a step, as a cluster's manager starts it: STEP PLAN ITERATIONS.

Its reductions pass the gate as those of training do. Iterations that an earlier attempt has run are not run
again.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from hocket.errors import HocketError
from hocket.graph import check_plan, load_plan, load_step
from hocket.launch.gate import first_iteration
from hocket.launch.lost_peers import LOST_PEER, PeerLostError, print_lost
from hocket.runtime.replay.worker import replay_with_reductions
from hocket.runtime.transfers.channel_groups import ChannelGroups
from hocket.runtime.transfers.gloo_group import GlooGroup

_WAIT_S = 86_400.0  # as long as others may have the network


def main() -> None:
    """Replay what the arguments say."""
    step, plan_path, iterations = sys.argv[1:]
    graph, plan = load_step(step), load_plan(plan_path)
    check_plan(plan, graph)
    torch.set_num_threads(1)
    timeout = timedelta(seconds=_WAIT_S)
    dist.init_process_group("gloo", timeout=timeout)
    ranks = list(range(dist.get_world_size()))
    groups = ChannelGroups(
        *(GlooGroup(ranks, f"replay/{name}", timeout) for name in ("transfers", "urgent", "choices"))
    )
    replay_with_reductions(
        graph,
        plan,
        groups,
        worker=dist.get_rank(),
        steps=int(iterations) - first_iteration(),
        timeout_s=_WAIT_S,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except PeerLostError as error:
        print_lost(error)
        sys.exit(LOST_PEER)
    except HocketError as error:
        print(f"hocket: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
