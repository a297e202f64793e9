"""Facts of ranks, as tests make them."""

from __future__ import annotations

from typing import Any

import msgspec

from hocket.doctor.interfaces import Interface
from hocket.doctor.rank_facts import GivenPlan, RankFacts

LOOPBACK = Interface(name="lo", addresses=["127.0.0.1"], up=True, loopback=True)
ETHERNET = Interface(name="eth0", addresses=["10.0.0.5"], up=True, rate_bps=10e9)
SOUND = RankFacts(
    host="one",
    machine="one",
    hocket="0.1.0",
    torch="2.13.0+cpu",
    python="3.11.7",
    backends=["gloo"],
    interfaces=[LOOPBACK, ETHERNET],
    gloo_address="10.0.0.5",
    shared_memory_path="/dev/shm",
    shared_memory_bytes=8 * 10**9,
    shared_memory_free_bytes=8 * 10**9,
    open_files_limit=1024,
    processors=2,
    threads=1,
    plan=GivenPlan(name="auto", digest="929260ad9b9e"),
)


def facts(rank: int = 0, **changed: Any) -> RankFacts:
    """A sound rank's facts, but for what is ``changed``."""
    return msgspec.structs.replace(SOUND, rank=rank, **changed)
