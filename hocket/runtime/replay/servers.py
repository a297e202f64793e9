"""A replay with parameter servers: their side, and the worker's.

Each worker-server pair has a group of its own, and a thread for each direction at either end. Receives are
posted a step ahead, under the message's place as tag, so that a sender never waits for its receiver to ask.

A worker's step begins with a word to every server, which answers with the pulls, one after the other in the
plan's order; it has ended when every server has said that this worker's pushes are in (asynchronous), or
everybody's (synchronous), and the operations are over. Nothing is updated: what an update costs is no part of
what is replayed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from queue import SimpleQueue

import torch
import torch.distributed as dist

from hocket.runtime.group import Group
from hocket.runtime.replay.messages import Message, Traffic
from hocket.runtime.replay.processor import Mailbox

SERVER, WORKER = 0, 1  # ranks in a pair's group
_WORD = 1 << 20  # the tag of what is no message of the plan


def serve(
    server: int, pairs: Sequence[Group], traffic: Traffic, *, steps: int, synchronous: bool, timeout_s: float
) -> None:
    """Serve ``steps`` steps of every worker; ``pairs``: the group with each of them.

    Raises
    ------
    RuntimeError, BrokenBarrierError
        When a worker is gone, or silent for longer than its group allows.
    """
    pulls = [message for message in traffic.pulls if message.server == server]
    pushes = [message for message in traffic.pushes if message.server == server]
    parameters = _buffers(pulls)
    everybody = threading.Barrier(len(pairs) if synchronous else 1, timeout=timeout_s)
    work: list[Callable[[], None]] = []
    for worker, pair in enumerate(pairs):
        work.append(partial(_Downlink(worker, pair, traffic, server, parameters).run, steps))
        work.append(partial(_Uplink(pair, pushes, everybody).run, steps))
    _run_together(work, everybody.abort)


class _Downlink:
    """Sends one worker its pulls."""

    def __init__(
        self, worker: int, pair: Group, traffic: Traffic, server: int, parameters: dict[Message, torch.Tensor]
    ) -> None:
        self._worker, self._pair, self._traffic, self._server = worker, pair, traffic, server
        self._parameters = parameters

    def run(self, steps: int) -> None:
        word = torch.zeros(1, dtype=torch.uint8)
        begun = self._pair.receive(word, WORKER, _WORD)
        for step in range(steps):
            begun.wait()
            if step + 1 < steps:
                begun = self._pair.receive(word, WORKER, _WORD)
            for index in self._traffic.pull_order(self._worker, step):
                message = self._traffic.pulls[index]
                if message.server == self._server:
                    self._pair.send(self._parameters[message], WORKER, index).wait()


class _Uplink:
    """Receives one worker's pushes, and tells it when they are in."""

    def __init__(self, pair: Group, pushes: Sequence[Message], everybody: threading.Barrier) -> None:
        self._pair, self._everybody = pair, everybody
        # Two steps' worth: the next one's receives are posted before this one is said to have ended.
        self._gradients = [_buffers(pushes) for _ in range(2)]

    def run(self, steps: int) -> None:
        word = torch.zeros(1, dtype=torch.uint8)
        posted = self._post(0)
        for step in range(steps):
            for work in posted:
                work.wait()
            if step + 1 < steps:
                posted = self._post(step + 1)
            self._everybody.wait()
            self._pair.send(word, WORKER, _WORD).wait()

    def _post(self, step: int) -> list[dist.Work]:
        gradients = self._gradients[step % 2]
        return [self._pair.receive(tensor, WORKER, _tag(message)) for message, tensor in gradients.items()]


class WorkersSide:
    """A worker's pulls and pushes; ``pairs``: the group with each server.

    ``arrivals`` hears of pulls by their index in ``traffic``. To be used as a context, which its threads end
    with.
    """

    def __init__(self, worker: int, pairs: Sequence[Group], traffic: Traffic, arrivals: Mailbox) -> None:
        self._worker, self._pairs, self._traffic, self._arrivals = worker, pairs, traffic, arrivals
        self._parameters, self._gradients = _buffers(traffic.pulls), _buffers(traffic.pushes)
        self._posted: list[SimpleQueue[tuple[int, dist.Work] | None]] = [SimpleQueue() for _ in pairs]
        self._outboxes = [Outbox(traffic, server) for server in range(len(pairs))]
        self._word = torch.zeros(1, dtype=torch.uint8)
        self._ended: list[dist.Work] = []
        self._threads = [
            threading.Thread(target=self._run, args=[work, server], daemon=True)
            for server in range(len(pairs))
            for work in (self._receive, self._send)
        ]

    def __enter__(self) -> WorkersSide:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for posted, outbox in zip(self._posted, self._outboxes, strict=True):
            posted.put(None)
            outbox.close()
        for thread in self._threads:
            thread.join()

    def begin(self, step: int) -> None:
        """Post the receives of ``step`` and ask for its pulls."""
        self._ended = [pair.receive(self._word, SERVER, _WORD) for pair in self._pairs]
        for index in self._traffic.pull_order(self._worker, step):
            message = self._traffic.pulls[index]
            work = self._pairs[message.server].receive(self._parameters[message], SERVER, index)
            self._posted[message.server].put((index, work))
        asked = [pair.send(torch.zeros(1, dtype=torch.uint8), SERVER, _WORD) for pair in self._pairs]
        for outbox in self._outboxes:
            outbox.begin()
        for work in asked:
            work.wait()

    def push(self, index: int) -> None:
        """All gradients of push ``index`` are complete."""
        self._outboxes[self._traffic.pushes[index].server].put(index)

    def wait_for_end(self) -> None:
        """Until every server has said that the step is over."""
        for work in self._ended:
            work.wait()

    def _run(self, work: Callable[[int], None], server: int) -> None:
        try:
            work(server)
        except Exception as error:
            self._arrivals.fail(error)

    def _receive(self, server: int) -> None:
        while (posted := self._posted[server].get()) is not None:
            index, work = posted
            work.wait()
            self._arrivals.came(index)

    def _send(self, server: int) -> None:
        while (index := self._outboxes[server].take()) is not None:
            message = self._traffic.pushes[index]
            self._pairs[server].send(self._gradients[message], SERVER, _tag(message)).wait()


class Outbox:
    """Pushes to one server that are ready and have not left."""

    def __init__(self, traffic: Traffic, server: int) -> None:
        self._own = [index for index, message in enumerate(traffic.pushes) if message.server == server]
        self._listed = traffic.listed
        self._left: list[int] = []
        self._ready: set[int] = set()
        self._changed = threading.Condition()
        self._closed = False

    def begin(self) -> None:
        """A step begins: all of its pushes are to leave."""
        with self._changed:
            assert not self._left
            self._left = list(self._own)

    def put(self, index: int) -> None:
        """Push ``index`` is ready."""
        with self._changed:
            self._ready.add(index)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more is to leave."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> int | None:
        """The push that leaves next, once there is one; None at the end."""
        with self._changed:
            while not self._closed:
                if self._ready and (not self._listed or self._left[0] in self._ready):
                    index = min(self._ready)
                    self._ready.discard(index)
                    self._left.remove(index)
                    return index
                self._changed.wait()
            return None


def _tag(push: Message) -> int:
    return push.place


def _buffers(messages: Sequence[Message]) -> dict[Message, torch.Tensor]:
    # An empty message is a byte: something has to come.
    return {message: torch.zeros(max(1, message.size_bytes), dtype=torch.uint8) for message in messages}


def _run_together(work: Sequence[Callable[[], None]], abort: Callable[[], None]) -> None:
    """Run each in a thread of its own; the first error is raised once all have ended."""
    with ThreadPoolExecutor(len(work)) as pool:
        futures = [pool.submit(each) for each in work]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            abort()
            raise
