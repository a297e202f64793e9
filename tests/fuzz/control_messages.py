"""Valid control messages, of every kind that a manager, a gate or a server reads: what the fuzzer damages."""

from __future__ import annotations

from typing import Any

import msgspec

from hocket.cluster.live.manager_messages import (
    AskEvents,
    AskJob,
    AskJobs,
    AskLog,
    AskStatus,
    AskWhy,
    Cancel,
    Drain,
    ManagerAnswer,
    Submit,
)
from hocket.cluster.live.runnable_jobs import LiveJob
from hocket.graph.plan import Plan, Pull, Push
from hocket.launch.control import Hello, Welcome
from hocket.launch.gate import (
    ChunkRequest,
    Compute,
    Computed,
    FromRank,
    GivenUp,
    Go,
    Held,
    Join,
    ToRank,
    Transferred,
)
from hocket.runtime.ps.wire import training_messages as ps
from hocket.runtime.ps.wire.model_spec import Spec, TensorSpec
from hocket.runtime.ps.wire.transport import FIRST_FRAME

SECRET = "only for these inputs"

JOB = LiveJob(
    **{"id": "a", "model": "m", "gpus": 2, "iterations": 4, "arrival_s": 0.0, "forward_s": 0.02},
    **{"backward_s": 0.02, "size_bytes": 1e5, "memory_bytes": 1.0, "command": ("true",), "folder": "."},
)
SPEC = Spec(
    parameters=(TensorSpec("a", (2, 3), "float32"), TensorSpec("b", (4,), "float32")),
    groups=(0, 0),
    optimizer="SGD",
    settings=[{"lr": 0.1, "momentum": 0.9}],
    state=(TensorSpec("running", (3,), "float32"),),
    buffers=1,
)
PLAN = Plan(
    policy="fifo",
    model="m",
    architecture="ps",
    pulls=(Pull(parameters=("a",), priority=0), Pull(parameters=("b",), priority=0)),
    pushes=(Push(parameters=("b",)), Push(parameters=("a",))),
    compute_order=None,
)
FRAME_LAYOUT = ps.FrameLayout(
    [[ps.Piece(0)], [ps.Piece(1)]], [[ps.Piece(1)], [ps.Piece(0)]], False, False, FIRST_FRAME
)
FROM_CLIENT = [
    Submit((JOB,)),
    Submit((JOB, msgspec.structs.replace(JOB, id="traffic", command=None))),
    *(Cancel("a"), Drain("node0", True), Drain("node1", False), AskStatus(), AskStatus(all=True)),
    *(AskWhy("first"), AskLog("first", 1, 1), AskEvents(3, "first"), AskJob("a"), AskJobs("queued", True)),
]
FROM_RANK = [Join(0), Compute(1, 0, 0), Computed(0, 1), ChunkRequest(2, 0, 50_000, 100_000), Transferred(0)]
FROM_WORKER = [
    *(
        ps.RendezvousEntry("0/1", b"x" * 30),
        ps.JoinRequest(SPEC),
        ps.ResumeAfter(0),
        FRAME_LAYOUT,
        ps.PullRequest(),
    ),
    *(
        ps.Commit([{"lr": 0.1, "momentum": 0.9}], "1.0"),
        ps.NormsRequest("2.0"),
        ps.OptimizerStateRequest(),
        ps.PlanMessage(PLAN),
        ps.Farewell(),
    ),
]
OTHERS: list[tuple[Any, list[Any]]] = [
    (Hello, [Hello("worker", 0, "127.0.0.1:1", SECRET), Hello("rank", 1, "1-1", SECRET)]),
    (Welcome, [Welcome("")]),
    (ToRank, [Go(1), Held(), GivenUp()]),
    (ManagerAnswer, [ManagerAnswer(notes=("a: queued",))]),
    (ps.FromServer, [ps.JoinAnswer(["127.0.0.1:1"], True, 0), ps.Norms(["1.0"]), ps.Failed("because")]),
]
SAID = [(FromRank, FROM_RANK), (ps.FromWorker, FROM_WORKER), *OTHERS]
