"""One rank's part in an examination, some of whose facts are another machine's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import torch.distributed as dist

from hocket.doctor.doctor import given_plan
from hocket.doctor.doctor_rank import RankOrders, examine_with_others
from hocket.doctor.rank_facts import SHARED_MEMORY, rank_facts

_TIMEOUT_S = 150.0


def examined(
    rank: int,
    world: int,
    folder: str,
    plans: list[str],
    changed: dict[str, Any],
    interface: str = "lo",
    shared_memory: str = str(SHARED_MEMORY),
) -> Any:
    """The examination's document, on rank 0; the last rank has the ``changed`` facts."""
    dist.destroy_process_group()  # ranks meet as the doctor's own do
    orders = RankOrders(
        rank=rank,
        workers=world,
        init_method=f"file://{folder}/meeting",
        timeout_s=_TIMEOUT_S,
        deadline_s=time.monotonic() + _TIMEOUT_S,
        folder=folder,
        plan=given_plan(plans[rank]),
    )
    last = rank == world - 1
    facts = rank_facts(
        rank,
        orders.plan,
        environment={"GLOO_SOCKET_IFNAME": interface if last else "lo"},
        shared_memory=Path(shared_memory if last else SHARED_MEMORY),
    )
    if last:
        facts = msgspec.structs.replace(facts, **changed)
    found = examine_with_others(orders, facts)
    return None if found is None else msgspec.to_builtins(found)
