"""Emulated ranks under the driver: they compute and transfer for exactly as long as their jobs say."""

from __future__ import annotations

import heapq
from typing import Any

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.live.driver import Driver
from hocket.cluster.simulator.simulate import simulate

CLUSTER = Cluster(
    num_servers=3, gpus_per_server=2, startup_s=0.01, per_byte_s=1e-7, contention_per_byte_s=2e-8,
    gpu_memory_bytes=10.0,
)  # fmt: skip
CHUNK = 2e6


def job(name: str, gpus: int = 1, arrival_s: float = 0.0, **changes: Any) -> Job:
    fields: dict[str, Any] = {
        **{"id": name, "model": "m", "gpus": gpus, "iterations": 3, "arrival_s": arrival_s},
        **{"forward_s": 1.0, "backward_s": 2.0, "size_bytes": 8e6, "memory_bytes": 4.0},
    }
    return Job(**fields | changes)


class World:
    """Ranks that compute for exactly as long as their jobs say, and links that follow Eq. 5 exactly."""

    def __init__(self, jobs: list[Job], policy: str, placement: str = "ls", **changes: Any) -> None:
        self.scheduling = Scheduling(placement=placement, policy=policy, chunk_bytes=CHUNK, **changes)
        self.driver = Driver(CLUSTER, self.scheduling)
        self.jobs = {each.id: each for each in jobs}
        self.due: list[tuple[float, int, Any]] = []
        self.number = 0
        self.finish_s: dict[str, float] = {}
        self.gpus: dict[str, list[int]] = {}
        self.numbers: dict[str, set[int]] = {}  # of GPUs that each has had
        # Of transfers under way: bytes of the chunk left, startup left, bytes after the chunk.
        self.moving: dict[str, list[float]] = {}
        self.since_s = 0.0
        self.leaving: list[str] = []
        self.waiting: dict[str, float] = {}
        self.left: dict[str, int] = {}
        self.begun: set[tuple[str, int, int]] = set()
        self.stops: dict[str, tuple[int, int, int]] = {}  # preempted, shrunk, grown
        for each in jobs:
            self.at(each.arrival_s, ("arrive", each.id))

    def at(self, time_s: float, what: Any) -> None:
        self.number += 1
        heapq.heappush(self.due, (time_s, self.number, what))

    def servers(self, name: str) -> set[int]:
        return {g // CLUSTER.gpus_per_server for g in self.gpus[name]}

    def per_byte(self, name: str) -> float:
        shared = max(sum(s in self.servers(other) for other in self.moving) for s in self.servers(name))
        return shared * CLUSTER.per_byte_s + (shared - 1) * CLUSTER.eta_s

    def next_transfer(self) -> tuple[float, str] | None:
        ends = [
            (self.since_s + left[1] + left[0] * self.per_byte(name), name)
            for name, left in self.moving.items()
        ]
        return min(ends, default=None)

    def move(self, now_s: float) -> None:
        rates = {name: self.per_byte(name) for name in self.moving}
        for name, left in self.moving.items():
            elapsed = now_s - self.since_s
            begun = min(elapsed, left[1])
            left[1] -= begun
            left[0] -= (elapsed - begun) / rates[name]
        self.since_s = now_s

    def run(self) -> dict[str, float]:
        iteration = dict.fromkeys(self.jobs, 0)
        while len(self.finish_s) < len(self.jobs):
            times = [self.due[0][0]] if self.due else []
            if (chunk := self.next_transfer()) is not None:
                times.append(chunk[0])
            if (due_s := self.driver.next_stop_s()) is not None:
                times.append(due_s)
            now_s = min(times)
            self.move(now_s)
            for name in [name for name, left in self.moving.items() if left[1] <= 1e-12 and left[0] <= 1e-2]:
                self.chunk_over(name, iteration, now_s)
            while self.due and self.due[0][0] <= now_s + 1e-9:
                self.happen(heapq.heappop(self.due)[2], iteration, now_s)
            self.decide(iteration, now_s)
            for name in self.leaving:
                self.driver.withdraw(name, now_s)
                self.finish_s[name] = now_s
            if self.leaving:
                self.leaving = []
                self.decide(iteration, now_s)
        return self.finish_s

    def chunk_over(self, name: str, iteration: dict[str, int], now_s: float) -> None:
        left = self.moving.pop(name)
        if left[2] > 0:
            self.driver.ask_transfer(
                name, iteration[name], round(left[2]), round(self.jobs[name].size_bytes), now_s
            )
            self.waiting[name] = left[2]
        else:
            self.driver.note_transfer_end(name, iteration[name])
            self.over(name, iteration, now_s)

    def over(self, name: str, iteration: dict[str, int], now_s: float) -> None:
        iteration[name] += 1
        if iteration[name] == self.jobs[name].iterations_on(len(self.gpus[name])):
            self.leaving.append(name)
            return
        for rank in range(len(self.gpus[name])):
            self.driver.ask_compute(name, rank, iteration[name], 0)

    def happen(self, what: Any, iteration: dict[str, int], now_s: float) -> None:
        match what:
            case ("arrive", name):
                self.driver.add([self.jobs[name]], [0], [False], [list(self.jobs).index(name)])
                self.driver.arrive(name)
            case ("launched", name):
                for rank in range(len(self.gpus[name])):
                    self.driver.add_rank(name, rank, iteration[name])
                    self.driver.ask_compute(name, rank, iteration[name], 0)
            case ("computed", name, rank, part):
                self.driver.note_task_end(name, rank, iteration[name], part)
                if part == 0:
                    self.driver.ask_compute(name, rank, iteration[name], 1)
                    return
                self.left[name] = self.left.get(name, len(self.gpus[name])) - 1
                if self.left[name]:
                    return
                del self.left[name]
                if len(self.servers(name)) > 1:
                    size = self.jobs[name].size_bytes
                    self.driver.ask_transfer(name, iteration[name], round(size), round(size), now_s)
                    self.waiting[name] = size
                else:
                    self.over(name, iteration, now_s)

    def decide(self, iteration: dict[str, int], now_s: float) -> None:
        actions = self.driver.decide(now_s)
        for name, gpus in actions.placements.items():
            self.begin(name, gpus, iteration, now_s)
        if actions.placements:
            more = self.driver.decide(now_s)
            actions.compute += more.compute
            actions.transfer += more.transfer
        for name, rank in actions.compute:
            each = self.jobs[name]
            key = (name, rank, iteration[name])
            part = 1 if key in self.begun else 0
            self.begun.add(key)
            self.at(now_s + (each.backward_s if part else each.forward_s), ("computed", name, rank, part))
        for name in actions.transfer:
            size = self.waiting.pop(name)
            chunk = min(size, CHUNK) if self.driver.preemptive else size
            self.moving[name] = [chunk, CLUSTER.startup_s, size - chunk]
        for name in actions.preemptions:
            self.leave(name, iteration[name], now_s, (1, 0, 0))
            self.driver.arrive(name)
        for name, to in actions.resizes.items():
            shrinks = len(to.gpus) < len(self.gpus[name])
            self.leave(name, iteration[name], now_s, (0, 1, 0) if shrinks else (0, 0, 1))
            self.driver.adopt(name, to.gpus, now_s)
            self.begin(name, list(to.gpus), iteration, now_s)
        if actions.preemptions or actions.resizes:
            self.decide(iteration, now_s)

    def begin(self, name: str, gpus: list[int], iteration: dict[str, int], now_s: float) -> None:
        """Launch a job's ranks on these GPUs."""
        self.gpus[name] = gpus
        self.numbers.setdefault(name, set()).add(len(gpus))
        iteration[name] = self.driver.iterations_done(name)  # in those of so many
        if self.jobs[name].startup_s > 0:
            self.at(now_s + self.jobs[name].startup_s, ("launched", name))
        else:
            self.happen(("launched", name), iteration, now_s)

    def leave(self, name: str, iteration: int, now_s: float, stop: tuple[int, int, int]) -> None:
        """End a job's ranks at once, amid an iteration; it has yet to arrive again."""
        before = self.stops.get(name, (0, 0, 0))
        self.stops[name] = (before[0] + stop[0], before[1] + stop[1], before[2] + stop[2])
        self.driver.withdraw(name, now_s)
        self.due = [each for each in self.due if each[2][0] == "arrive" or each[2][1] != name]
        heapq.heapify(self.due)
        self.begun = {key for key in self.begun if key[0] != name}
        for kept in (self.left, self.waiting, self.moving):
            kept.pop(name, None)
        place = list(self.jobs).index(name)
        self.driver.add([self.jobs[name]], [iteration * len(self.gpus[name])], [False], [place])
        self.driver.set_stops({name: self.stops[name]})


def ends_as_simulated(world: World, jobs: list[Job]) -> None:
    finish_s = world.run()
    predicted = simulate(JobSet(jobs=tuple(jobs)), CLUSTER, world.scheduling)
    assert [finish_s[each.id] for each in jobs] == pytest.approx(predicted.finish_s.tolist(), rel=2e-3)
    for each, gpus in zip(jobs, predicted.gpus, strict=True):
        assert [divmod(g, CLUSTER.gpus_per_server) for g in world.gpus[each.id]] == list(gpus)
