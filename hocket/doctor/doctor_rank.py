"""One rank of an examination: it tells its facts, hears the others', and trains with them for a moment.

Facts travel through torch's store, so that they are known where gloo cannot connect. Failures are told
there, too: rank 0 has all of it, unless a rank is lost.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from hocket.doctor.examination import Examination, RankOutcome, can_train, examination
from hocket.doctor.findings import Finding, ranks_text
from hocket.doctor.rank_facts import GivenPlan, RankFacts, rank_facts
from hocket.errors import HocketError, one_line, reason
from hocket.profiler._exchange import leave_with_parent
from hocket.profiler._ranks import RankRequest

_MEETING, _TESTING, _TELLING = 0.4, 0.6, 0.9
"""Parts of the time that is left for which ranks are waited for: at the start, in the test, and behind it."""
_SHOWN = 300  # characters of a failure


class RankOrders(RankRequest, frozen=True, kw_only=True):
    """One rank's orders to tell its facts and to train for a moment."""

    plan: GivenPlan

    def left(self, part: float) -> timedelta:
        """``part`` of the time that is left, for a wait."""
        return timedelta(seconds=max(1.0, part * (self.deadline_s - time.monotonic())))


def main() -> None:
    """Obey the orders in the first argument; ends with status 0, or 1 and a line in RANK.failed."""
    orders = msgspec.json.decode(sys.argv[1], type=RankOrders)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    try:
        found = examine_with_others(orders, rank_facts(orders.rank, orders.plan))
        if found is not None:
            Path(orders.folder, f"{orders.rank}.json").write_bytes(msgspec.json.encode(found))
    except Exception as error:
        Path(orders.folder, f"{orders.rank}.failed").write_text(_line_of(error))
        os._exit(1)
    # Threads of the process group may still wait for a rank that is gone.
    os._exit(0)


def examine_with_others(orders: RankOrders, facts: RankFacts) -> Examination | None:
    """This rank's part, with its ``facts``; the examination, on rank 0, and None on the others.

    Raises
    ------
    HocketError
        When this rank does not reach the others' store.
    """
    store = _store(orders)
    _tell(store, "facts", orders.rank, facts)
    told = _heard(store, "facts", orders, _MEETING)
    ranks = [_facts_of(each) for each in told if each is not None]
    missing = [rank for rank, each in enumerate(told) if each is None]
    if missing:
        return _without(missing, ranks, orders) if orders.rank == 0 else None
    Path(orders.folder, f"{orders.rank}.joined").touch()
    tests = can_train(ranks)
    _tell(store, "outcome", orders.rank, _outcome(store, orders) if tests else RankOutcome(rank=orders.rank))
    if orders.rank:
        return None
    # Its process may hold the store: it leaves when all have told how they ended.
    answers = _heard(store, "outcome", orders, _TELLING)
    outcomes = [
        RankOutcome(rank=rank, failure="it was lost or too late; its own output says more")
        if answer is None
        else msgspec.json.decode(answer, type=RankOutcome)
        for rank, answer in enumerate(answers)
    ]
    return examination(ranks, outcomes if tests else [], orders.workers)


def _store(orders: RankOrders) -> Store:
    try:
        meeting = rendezvous(orders.init_method, orders.rank, orders.workers, timeout=orders.left(_MEETING))
        store: Store = next(iter(meeting))[0]
    except (RuntimeError, OSError) as error:
        where = ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
        raise HocketError(
            f"rank {orders.rank} did not meet all {orders.workers} ranks at {where} in time; start every"
            f" rank, let this machine reach that address, or raise --timeout ({reason(error)[:_SHOWN]})"
        ) from None
    return PrefixStore("hocket-doctor", store)


def _tell(store: Store, what: str, rank: int, value: msgspec.Struct) -> None:
    store.set(f"{what}/{rank}", msgspec.json.encode(value).decode())


def _heard(store: Store, what: str, orders: RankOrders, part: float) -> list[bytes | None]:
    """The values that ranks have told; None of one that has not in ``part`` of the time that is left."""
    keys = [f"{what}/{rank}" for rank in range(orders.workers)]
    try:
        with contextlib.suppress(dist.DistStoreError):  # they are late: some may be there
            store.wait(keys, orders.left(part))
        return [store.get(key) if store.check([key]) else None for key in keys]
    except RuntimeError:  # who held the store has left, and tells of it
        return [None] * orders.workers


def _facts_of(told: bytes) -> RankFacts:
    """A rank's facts; of another version of Hocket that tells them otherwise, which one it is."""
    try:
        return msgspec.json.decode(told, type=RankFacts)
    except msgspec.ValidationError:
        raw = msgspec.json.decode(told)
        return RankFacts(rank=int(raw["rank"]), hocket=str(raw.get("hocket", "of another kind")))


def _without(missing: Sequence[int], there: Sequence[RankFacts], orders: RankOrders) -> Examination:
    line = (
        f"{ranks_text(missing)} of {orders.workers} never came, within {orders.timeout_s:g} s;"
        " start every rank, see that it reaches rank 0's machine, or raise --timeout"
    )
    found = examination(there, [], orders.workers)
    return msgspec.structs.replace(
        found, green=False, findings=[Finding(about="ranks", line=line), *found.findings]
    )


def _outcome(store: Store, orders: RankOrders) -> RankOutcome:
    """This rank's self-test, which never raises."""
    try:
        from hocket.doctor.self_test import self_test
        from hocket.runtime.training.explain import clock_offset_s
        from hocket.runtime.transfers.gloo_group import GlooGroup

        waits = orders.left(_TESTING)
        dist.init_process_group(
            "gloo",
            store=PrefixStore("test", store),
            rank=orders.rank,
            world_size=orders.workers,
            timeout=waits,
        )
        clocks = GlooGroup(range(orders.workers), "hocket-doctor", waits)
        offset_s = clock_offset_s(clocks, time.time)
        test = self_test(waits.total_seconds())
        return RankOutcome(rank=orders.rank, test=test, clock_offset_s=offset_s)
    except Exception as error:
        text = str(error).lower()
        lost = isinstance(error, dist.DistError) or "connection closed" in text or "connection reset" in text
        return RankOutcome(rank=orders.rank, failure=_line_of(error), by_another=lost)


def _line_of(error: Exception) -> str:
    kind = "" if isinstance(error, HocketError) else f"{type(error).__name__}: "
    return one_line(f"{kind}{reason(error)}")[:_SHOWN]
