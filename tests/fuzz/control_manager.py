"""A manager and its gate, after the proof of the token, told damaged messages by commands and ranks."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.live.api.operations import OPERATIONS, call_of, message_of
from hocket.cluster.live.manager import Manager
from hocket.cluster.live.manager_messages import FromClient, Submit
from hocket.cluster.live.nodes import Node
from hocket.errors import HocketError
from hocket.launch.control import decoded, framed
from hocket.launch.gate import FromRank, Join
from tests.fuzz.control_faults import LONGEST_S, damaged_message, shown, tried
from tests.fuzz.control_messages import FROM_CLIENT, FROM_RANK, JOB
from tests.fuzz.mutations import damaged
from tests.tokens import CREDENTIALS


class QuietNode:
    """A node whose ranks run for ever and do nothing."""

    python = sys.executable
    shares_files = here = True
    address, machine = "127.0.0.1", "here"
    devices: tuple[str, ...] = ()
    slots: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self._started: dict[str, int | None] = {}

    async def free_port(self) -> int:
        return 1

    async def start(self, key: str, *_: Any) -> None:
        self._started[key] = None

    async def conditions(self) -> dict[str, int | None]:
        return dict(self._started)

    async def stop(self, key: str, grace_s: float) -> None:
        self._started[key] = 143

    async def output(self, key: str) -> str:
        return ""

    async def forget(self, key: str) -> None:
        del self._started[key]

    async def log(self, key: str, position: Any) -> None:
        return None

    async def tidy(self, keep_s: float, most_bytes: float) -> None: ...

    async def text(self, path: str) -> str:
        return ""


class QuietLink:
    """A rank's link; what it is told is encoded, and goes nowhere."""

    def __init__(self, attempt: str, rank: int) -> None:
        self.attempt, self.rank = attempt, rank

    def send(self, message: msgspec.Struct) -> None:
        framed(message)

    def give_up(self) -> None: ...

    def close(self) -> None: ...


async def managed(folder: Path, count: int, draw: random.Random, found: Counter[str]) -> None:
    nodes = cast(list[Node], [QuietNode("node0"), QuietNode("node1")])
    cluster = Cluster(num_servers=2, gpus_per_server=2, gpu_memory_bytes=10.0)
    scheduling = Scheduling(placement="ls", policy="srsf-1")
    manager = Manager(folder, cluster, nodes, scheduling, credentials=CREDENTIALS)
    book, gatekeeper = manager._context, manager._gatekeeper
    try:
        await manager._commands.serve(Submit((msgspec.structs.replace(JOB, id="first", command=None),)))
        for _ in range(count):
            if draw.random() < 0.4:
                said = draw.choice(FROM_CLIENT)
                request = tried(lambda said=said: _requested(said, draw), found)  # type: ignore[misc]
                if request is not None:
                    await _served(manager, request, found)
            else:
                data = damaged_message(draw.choice(FROM_RANK), draw)
                message = tried(lambda data=data: decoded(data, FromRank), found)  # type: ignore[misc]
                if message is not None and book.by_attempt:
                    attempt = draw.choice(list(book.by_attempt))
                    tried(lambda m=message, a=attempt: _rank_says(manager, m, a, draw), found)  # type: ignore[misc]
            await asyncio.sleep(0)
            tried(gatekeeper.hold, found)
            if book.failure is not None:
                found[f"the manager ends: {shown(book.failure)}"] += 1
                return
    finally:
        await book.end_work()
        manager._database.close()


def _requested(message: FromClient, draw: random.Random) -> FromClient:
    """A damaged request of the HTTP API that stands for a message, as its server reads it."""

    def bad(text: str) -> str:
        return damaged(text.encode(), draw).decode(errors="replace") if draw.random() < 0.5 else text

    sent = call_of(message)
    operation = next(each for each in OPERATIONS if each.message is type(message))
    query = {bad(name): bad(value) for name, value in parse_qsl(urlsplit(sent.target).query)}
    path = {name: bad(getattr(message, name)) for name in operation.in_path}
    return message_of(operation, path, query, damaged(sent.body, draw) if sent.body else b"")


async def _served(manager: Manager, request: FromClient, found: Counter[str]) -> None:
    began_s = time.process_time()
    try:
        framed(await manager._commands.serve(request))
    except HocketError as error:
        if "\n" in str(error):
            found[f"a refusal of several lines: {str(error)[:80]!r}"] += 1
    except Exception as error:
        found[shown(error)] += 1
    if time.process_time() - began_s > LONGEST_S:
        found["a command takes too long"] += 1


def _rank_says(manager: Manager, message: Any, attempt: str, draw: random.Random) -> None:
    run = manager._context.by_attempt[attempt]
    rank = draw.randrange(len(run.attempt.gpus))
    if isinstance(message, Join) or rank not in run.links:
        said = message if isinstance(message, Join) else Join(0)
        manager._gatekeeper.add_rank(cast(Any, QuietLink(attempt, rank)), said)
    manager._gatekeeper.handle_message(run.links[rank], message)
