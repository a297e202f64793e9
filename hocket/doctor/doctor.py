"""``hocket doctor``: two ranks on this machine, or those of torchrun, examined before they train."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time

import msgspec

from hocket.doctor.doctor_rank import RankOrders
from hocket.doctor.examination import Examination
from hocket.doctor.findings import Finding
from hocket.doctor.rank_facts import GivenPlan
from hocket.errors import HocketError
from hocket.launch.job import JOB_VARIABLE
from hocket.profiler import launched
from hocket.profiler._ranks import RankWork, run_ranks
from hocket.tuner.distribute import resolve_plan

RANKS = 2
"""Ranks that are started where torchrun has not."""
_EXAMINING = RankWork("hocket.doctor.doctor_rank", "examining")
# What they say is for the script's training, not for the test's.
_SCRIPTS = ("HOCKET_PLAN", "HOCKET_NETWORK", "HOCKET_TIMELINE", JOB_VARIABLE)
# Memory of tensors that are gone is given back at once, so that peaks can be told apart.
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536"}
_LONGEST_S = 3600.0


def examine(*, plan: str | None = None, timeout_s: float = 120.0) -> Examination | None:
    """Examine two ranks here, or the job of torchrun's that this process is a rank of.

    ``plan``: a plan's file, or a policy, that all ranks are to be given; None: that of HOCKET_PLAN. All
    processes have ended when this returns or raises, after ``timeout_s`` at the latest.

    Returns
    -------
    The examination, on rank 0; None on torchrun's other ranks, unless they did not reach it.

    Raises
    ------
    HocketError
        When the request makes no sense.
    """
    began_s = time.monotonic()
    if not 5 <= timeout_s <= _LONGEST_S:
        raise HocketError(f"timeout of {timeout_s:g} s is not between 5 and {_LONGEST_S:g}; give e.g. 120s")
    place = launched()
    given = given_plan(plan)
    if given.error and place is None:
        raise HocketError(given.error)
    workers = RANKS if place is None else place.workers
    with tempfile.TemporaryDirectory(prefix="hocket-") as folder:
        orders = [
            RankOrders(
                rank=rank,
                workers=workers,
                init_method=f"file://{folder}/meeting" if place is None else "env://",
                timeout_s=timeout_s,
                deadline_s=began_s + timeout_s,
                folder=folder,
                plan=given,
            )
            for rank in (range(workers) if place is None else [place.rank])
        ]
        try:
            answer = run_ranks(_EXAMINING, orders, _environment(workers), orders[0].deadline_s)
        except HocketError as error:
            # A job that cannot be examined is no request that cannot be served.
            lost = [Finding(about="ranks", line=str(error))]
            return Examination(
                green=False, workers=workers, findings=lost, ranks=[], wall_s=time.monotonic() - began_s
            )
    if answer is None:
        return None
    found = msgspec.json.decode(answer, type=Examination)
    return msgspec.structs.replace(found, wall_s=time.monotonic() - began_s)


def given_plan(argument: str | None) -> GivenPlan:
    """The plan that ``argument``, or else HOCKET_PLAN, gives this rank, or the line why there is none."""
    wanted = argument if argument is not None else os.environ.get("HOCKET_PLAN") or "auto"
    try:
        plan, policy = resolve_plan(wanted)
    except HocketError as error:
        return GivenPlan(error=str(error))
    whole = policy.encode() if plan is None else msgspec.json.encode(plan)
    name = policy if plan is None else plan.policy
    return GivenPlan(name=name, digest=hashlib.sha256(whole).hexdigest()[:12])


def _environment(workers: int) -> dict[str, str]:
    """The variables of ranks: those of training, but for what is a script's."""
    environment = {name: value for name, value in os.environ.items() if name not in _SCRIPTS}
    if workers > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
    return {
        **environment,
        **_ALLOCATOR,
        "TORCH_CPP_LOG_LEVEL": environment.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }
